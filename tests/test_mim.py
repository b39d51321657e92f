"""The commands of mim on the page, in a folder of a user. It takes a minute (`make test-zoo`)."""

import re
import shlex
import sys
from pathlib import Path

import pytest
from documents import blocks, shown
from helpers import IS_FORK, python
from mmengine.config import Config
from running import NO_WORKERS, TWO_STEPS, write_few_scenes

pytestmark = [
    pytest.mark.zoo,
    pytest.mark.xfail(
        IS_FORK,
        reason='takes the first line of RECORD (mmbixt-*.dist-info) for the folder of the package',
        strict=True,
    ),
]

NAME = 'semfpn_bixt_ti_ade20k'
(PAGE,) = (block.code for block in blocks('bash') if block.kind == 'mim')
SCENES = 'data/sample/ade/ADEChallengeData2016'
SPLITS = 'train', 'val', 'test'
OFFLINE = ['--no-deps', '--no-index', '--target', 'site']
ON_SCENES = [f'{split}_dataloader.dataset.data_root={SCENES}' for split in SPLITS]
CPU = ['--gpus', '0']
SHORT = ['--cfg-options', *TWO_STEPS, *NO_WORKERS]
# For each command, by its first words: options of the test, and a pattern of what it prints.
COMMANDS = {
    'install': (OFFLINE, 'Successfully installed mmbixt'),
    'search mmbixt': ([], r'config id: semfpn_xcit_s12_p16_ade20k\n(?s:.*)parameters +32222374\n'),
    'download mmbixt': ([], 'semfpn_xcit_s12_p16_ade20k'),
    'run mmbixt': (['--cfg-options', *ON_SCENES], 'All images and labels can be read.'),
    'train mmbixt': (SHORT, 'Training finished success'),
    'test mmbixt': ([*CPU, '--sample', '--cfg-options', *NO_WORKERS], r'Iter\(test\).*mIoU'),
    'train mmsegmentation': (
        [*CPU, *SHORT, *ON_SCENES, 'train_dataloader.batch_size=1'],
        'Training finished success',
    ),
}


def test_commands_of_the_page(wheel, tmp_path):
    """In their order, from the wheel instead of the checkout."""
    write_few_scenes(tmp_path / 'data/sample')
    (tmp_path / 'sem_fpn_xcit_small_12_p16.pth').touch()  # nothing to download, as mim sees by name
    config = re.sub(r' *init_cfg=dict\(.*\n', '', shown('mmseg')[0])  # no weights at hand
    config = config.replace('small12', 'tiny12').replace('384', '192')
    config += "model['decode_head'].update(norm_cfg=dict(type='BN'))"  # no GPU
    (tmp_path / 'my_config.py').write_text(config)
    page = PAGE.replace('install .', f'install {wheel}')
    page = page.replace('FILE', f'work_dirs/{NAME}_sample/iter_2.pth')
    untested = dict(COMMANDS)
    for line in page.splitlines():
        program, *words = shlex.split(line, comments=True)
        assert program == 'mim'
        start = words[0] if words[0] == 'install' else ' '.join(words[:2])
        options, expected = untested.pop(start)
        # the packages of this process, and mmbixt from where it was installed
        output = python(
            Path(sys.executable).with_name('mim'),
            *words,
            *options,
            cwd=tmp_path,
            PYTHONPATH=str(tmp_path / 'site'),
            PYTHONSAFEPATH='1',
        )
        assert re.search(expected, output), f'{line}\n{output}'
    assert not untested
    downloaded = Config.fromfile(tmp_path / 'semfpn_xcit_s12_p16_ade20k.py')  # whole, in one file
    assert downloaded.model.backbone.type == 'mmbixt.XCiT'
