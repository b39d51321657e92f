"""mim, outside of the repository, with mmbixt from a wheel. It takes minutes (`make test-zoo`)."""

import re
import sys
from functools import partial
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from documents import shown
from helpers import IS_FORK, python
from mmengine.config import Config
from running import TWO_STEPS

from mmbixt.sample.sample_data import write_sample_data

pytestmark = [
    pytest.mark.zoo,
    pytest.mark.xfail(
        IS_FORK,
        reason='takes the first line of RECORD (mmbixt-*.dist-info) for the folder of the package',
        strict=True,
    ),
]

SCENES = 'data/scenes/ade/ADEChallengeData2016'
# what a user's config needs besides, to run two steps on the scenes without a GPU
SMALL = f"""
val_dataloader = dict(
    num_workers=0,
    persistent_workers=False,
    dataset=dict(data_root={SCENES!r}),
)
test_dataloader = val_dataloader
train_dataloader = dict(val_dataloader, batch_size=2)
model['decode_head'].update(norm_cfg=dict(type='BN'))
train_cfg = dict(max_iters=2, val_interval=2)
default_hooks = dict(checkpoint=dict(interval=2))
"""


@pytest.fixture(scope='module')
def project(tmp_path_factory):
    """A user's folder, empty but for the scenes."""
    folder = tmp_path_factory.mktemp('project')
    write_sample_data(folder / 'data/scenes', 4, 2, 96, 128)
    return folder


@pytest.fixture(scope='module')
def mim(installed, project):
    """Runs mim in the project, with the installed mmbixt: what it prints."""
    program = Path(sys.executable).with_name('mim')
    return partial(python, program, cwd=project, PYTHONPATH=str(installed), PYTHONSAFEPATH='1')


def test_search_by_data_set(mim):
    output = mim('search', 'mmbixt', '--dataset', 'ade20k', '--field', 'parameters', 'weight')
    assert 'config id: semfpn_xcit_s12_p16_ade20k\n' in output
    assert 'parameters  32222374' in output
    assert 'https://dl.fbaipublicfiles.com/xcit/ade/sem_fpn_xcit_small_12' in output


def test_download(mim, project):
    """The config, whole in one file; the weights are there, as mim sees by their name."""
    (project / 'sem_fpn_xcit_small_12_p16.pth').touch()
    mim('download', 'mmbixt', '--config', 'semfpn_xcit_s12_p16_ade20k', '--dest', '.')
    config = Config.fromfile(project / 'semfpn_xcit_s12_p16_ade20k.py')
    assert config.model.backbone.type == 'mmbixt.XCiT'


def test_run_a_tool(mim):
    data = [f'{split}_dataloader.dataset.data_root={SCENES}' for split in ('train', 'val', 'test')]
    options = ['--cfg-options', *data]
    output = mim('run', 'mmbixt', 'check_dataset', 'semfpn_bixt_ti_ade20k', *options)
    assert 'All images and labels can be read.' in output


def test_train_and_test_a_config_of_mmbixt_by_name(mim, project):
    name = 'semfpn_bixt_ti_ade20k'
    options = ['--gpus', 0, '--sample', '--cfg-options', *TWO_STEPS]
    output = mim('train', 'mmbixt', f'{name}.py', *options)
    assert 'Training finished successfully' in output
    checkpoint = project / f'work_dirs/{name}_sample/iter_2.pth'
    output = mim('test', 'mmbixt', f'{name}.py', '--checkpoint', checkpoint, *options[:3])
    assert re.search(r'Iter\(test\).*mIoU', output)


def test_train_and_test_a_config_of_a_user(mim, project):
    """That of the documents, by mmsegmentation's own tools."""
    text = re.sub(r' *init_cfg=dict\(.*\n', '', shown('mmseg')[0])  # weights are not at hand
    (project / 'my_config.py').write_text(text + SMALL)
    package = packages_distributions()['mmseg'][0]
    output = mim('train', package, 'my_config.py', '--gpus', 0, '--work-dir', 'mine')
    assert 'Training finished successfully' in output
    checkpoint = project / 'mine/iter_2.pth'
    output = mim('test', package, 'my_config.py', '--checkpoint', checkpoint, '--gpus', 0)
    assert 'Testing finished successfully' in output
