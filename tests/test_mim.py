"""The lines of docs/projects.md for mim, outside of the repository, with mmbixt from a wheel.

All but one take minutes together: they are part of `make test-zoo`.
"""

import re
import shutil
import sys
from functools import partial
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import torch
from documents import blocks
from helpers import IS_FORK, official_state, only_in_zoo, python
from mmseg.apis import init_model
from running import TWO_STEPS

from mmbixt.sample.sample_data import write_sample_data

finds_mmbixt = pytest.mark.xfail(
    IS_FORK,
    reason='takes the first line of RECORD (mmbixt-*.dist-info) for the folder of the package',
    strict=True,
)

# what a user's config needs besides, to run two steps on the scenes without a GPU
LOADERS = """
val_dataloader = dict(num_workers=0, persistent_workers=False, dataset=dict(data))
test_dataloader = val_dataloader
train_dataloader = dict(val_dataloader, batch_size=2)
"""
SMALL = {
    'mmseg': f"""
data = dict(data_root='data/scenes/ade/ADEChallengeData2016')
{LOADERS}
model['decode_head'].update(norm_cfg=dict(type='BN'))
train_cfg = dict(max_iters=2, val_interval=2)
default_hooks = dict(checkpoint=dict(interval=2))
""",
    'mmpretrain': f"""
data = dict(data_root='data/scenes/imagenet')
{LOADERS}
param_scheduler = []
train_cfg = dict(max_epochs=1)
""",
}
INHERITED = """
_base_ = __import__('mmbixt') and 'mmbixt::bixt/linear_bixt_ti_ade20k.py'
model = dict(backbone=dict(init_cfg=None))
"""


@pytest.fixture(scope='module')
def project(tmp_path_factory):
    """A user's folder, empty but for the scenes."""
    folder = tmp_path_factory.mktemp('project')
    write_sample_data(folder / 'data/scenes', 4, 2, 96, 128)
    return folder


@pytest.fixture(scope='module')
def run(installed, project):
    """Runs Python in the project, with the installed mmbixt: what it prints."""
    return partial(python, cwd=project, PYTHONPATH=str(installed), PYTHONSAFEPATH='1')


@pytest.fixture(scope='module')
def mim(run):
    return partial(run, Path(sys.executable).with_name('mim'))


def user_configs():
    """Those of the documents, and one that inherits."""
    pages = [block for block in blocks('python') if block.place.startswith('docs/projects.md')]
    shown = [(block.kind, block.code) for block in pages if block.kind in SMALL]
    return [*shown, ('mmseg', INHERITED)]


@only_in_zoo
@finds_mmbixt
def test_search_by_data_set_and_run_any_tool(mim):
    output = mim('search', 'mmbixt', '--dataset', 'ade20k', '--field', 'parameters', 'weight')
    assert 'config id: semfpn_xcit_s12_p16_ade20k\n' in output
    assert 'parameters  32222374' in output
    assert 'https://dl.fbaipublicfiles.com/xcit/ade/sem_fpn_xcit_small_12' in output
    assert 'coco' not in output.replace('semfpn', '')
    splits = 'train', 'val', 'test'
    roots = [f'{split}_dataloader.dataset.data_root=data/scenes/coco/' for split in splits]
    config = 'maskrcnn_xcit_t12_p16_3x_coco'
    output = mim('run', 'mmbixt', 'check_dataset', config, '--cfg-options', *roots)
    assert 'All images and labels can be read.' in output


@finds_mmbixt
def test_download_leaves_config_and_weights_that_fit(project, run):
    """The network is replaced; what is asked of it, and what becomes of it, is mim's."""
    state = official_state('whole__sem_fpn_xcit_tiny_12_p16')
    torch.save(dict(meta={}, state_dict=state), project / 'served.pth')
    code = """
import shutil, sys
import mim
globals_of_mim = mim.download.__globals__
def serve(url, path, **_):
    print('URL', url)
    shutil.copy('served.pth', path)
globals_of_mim['download_from_file'] = serve
mim.download('mmbixt', ['semfpn_xcit_t12_p16_ade20k'], dest_root='got')
"""
    output = run('-W', 'ignore', '-c', code)
    url = 'https://dl.fbaipublicfiles.com/xcit/ade/sem_fpn_xcit_tiny_12_p16.pth'
    assert f'URL {url}\n' in output
    files = ('semfpn_xcit_t12_p16_ade20k.py', 'sem_fpn_xcit_tiny_12_p16.pth')
    model = init_model(*(str(project / 'got' / file) for file in files), device='cpu')
    key = 'backbone.blocks.3.attn.qkv.weight'
    assert torch.equal(model.state_dict()[key], state[key])


@only_in_zoo
@finds_mmbixt
def test_train_and_test_a_config_of_ours_by_name(mim, project):
    name = 'semfpn_bixt_ti_ade20k'
    options = ['--gpus', 0, '--sample', '--cfg-options', *TWO_STEPS]
    output = mim('train', 'mmbixt', f'{name}.py', *options)
    assert 'Training finished successfully' in output
    checkpoint = project / f'work_dirs/{name}_sample/iter_2.pth'
    output = mim('test', 'mmbixt', f'{name}.py', '--checkpoint', checkpoint, *options[:3])
    assert re.search(r'Iter\(test\).*mIoU', output)


@only_in_zoo
@pytest.mark.parametrize(
    ('scope', 'text'), user_configs(), ids=['semfpn', 'classifier', 'inherited']
)
def test_train_and_test_a_config_of_a_user(mim, project, scope, text):
    small = SMALL[scope]
    if text == INHERITED:
        small = re.sub(r'model\[.*\n', '', small)  # it has no norm to change
    text = re.sub(r' *init_cfg=dict\(.*\n', '', text)  # weights are not at hand
    if IS_FORK:
        text = text.replace("_base_ = 'mmseg::", "_base_ = __import__('mmbixt') and 'mmseg::")
    (project / 'my_config.py').write_text(text + small)
    package = packages_distributions()[scope][0]  # mmsegmentation or onedl-mmsegmentation
    work_dir = project / 'work_dirs/mine'
    shutil.rmtree(work_dir, ignore_errors=True)
    output = mim('train', package, 'my_config.py', '--gpus', 0, '--work-dir', work_dir)
    assert 'Training finished successfully' in output
    checkpoint = (work_dir / 'last_checkpoint').read_text()
    output = mim('test', package, 'my_config.py', '--checkpoint', checkpoint, '--gpus', 0)
    assert 'Testing finished successfully' in output
