from functools import cache
from pathlib import Path

import pytest
import torch
from helpers import official_state, others_in_zoo

from mmbixt.backbones import BiFormer, BiSASwin, BiXT, XCiT, published

CASES = {  # layout: the description by the tool, the model of the result
    'bixt_ti_l64_d13_p16': ('bixt_ti_l64_d13_p16 (mmbixt.BiXT) or bixt_ti_l64_d13_p16s8', BiXT),
    'xcit_nano_12_p16__timm': (
        "xcit_nano_12_p16 (mmbixt.XCiT, arch='nano12', patch_size=16)\n",
        lambda: XCiT('nano12'),
    ),
    'biformer_stl_nchw': ('biformer_stl_nchw (mmbixt.BiFormer', lambda: BiFormer('stl-nchw')),
    'swin_tiny_microsoft': ('swin_tiny (mmbixt.BiSASwin', lambda: BiSASwin(bisa_stages=())),
}
# some of the models above and similar ones; building all published models takes seconds
SOME = [
    *('bixt_ti_l64_p16', 'bixt_ti_l64_d13_p16', 'bixt_ti_l64_d13_p16s8', 'bixt_ti_cnv_l64_p16'),
    *('xcit_nano_12_p16', 'xcit_nano_12_p8', 'xcit_tiny_12_p16', 'xcit_tiny_24_p16'),
]


@pytest.fixture(autouse=True)
def _some_models(request, monkeypatch):
    if request.node.get_closest_marker('zoo') is None:
        some = [model for model in published.PUBLISHED if model.name in SOME]
        assert len(some) == len(SOME)
        monkeypatch.setattr(published, 'PUBLISHED', some)


@cache
def whole():
    return official_state('whole__sem_fpn_xcit_tiny_12_p16')


def without(part):
    return {key: value for key, value in whole().items() if not key.startswith(part)}


@pytest.fixture
def convert(within, tmp_path):
    """Runs the tool; returns its output."""

    def convert(*options, target='out.pth', fails=False):
        arguments = tmp_path / 'in.pth', tmp_path / target, *options
        done = within('convert_checkpoint.py', *arguments, fails=fails)
        assert 'Traceback' not in done.stderr
        return done.said

    return convert


@pytest.mark.parametrize('layout', others_in_zoo(CASES, [*CASES][:2]))
def test_layouts_are_recognised_and_the_result_loads(convert, tmp_path, layout):
    what, make = CASES[layout]
    state = official_state(layout)
    torch.save(dict(model=state), tmp_path / 'in.pth')
    output = convert()
    assert f'in.pth is {what}' in output
    kinds = ['unchanged', 'renamed', 'dropped', 'missing']
    assert [line.split()[0] for line in output.splitlines()[1:5]] == kinds
    done = torch.load(tmp_path / 'out.pth')
    assert done['meta']['source'].endswith('in.pth')
    direct, converted = make(), make()
    direct.load_state_dict(state)
    converted.load_state_dict(done['state_dict'])
    fresh = ('norm', 'extra_norms.')  # initial values in both
    for key, value in direct.state_dict().items():
        assert torch.equal(value, converted.state_dict()[key]) or key.startswith(fresh)


def test_whole_model(convert, tmp_path):
    torch.save(dict(meta={}, state_dict=whole()), tmp_path / 'in.pth')
    output = convert('--verbose', target='new/out.pth')
    assert 'a whole model of the XCiT authors, xcit_tiny_12_p16 (mmbixt.XCiT' in output
    assert 'backbone.fpn2.0.bias -> neck.0.fpn2.0.bias' in output
    assert 'neck.0.fpn2.0.bias' in torch.load(tmp_path / 'new/out.pth')['state_dict']


def nested():
    state = official_state('xcit_nano_12_p16__timm')
    return {'teacher': {f'backbone.{key}': value for key, value in state.items()}}


REFUSED = [  # content of the file, options, message
    (lambda: {'conv.weight': torch.zeros(3)}, [], 'published models has the weights of'),
    (whole, ['--arch', 'xcit_tiny_24_p16'], 'does not fit xcit_tiny_24_p16'),
    (lambda: without('backbone.blocks.11.'), [], 'CheckpointMismatchError'),
    (nested, [], "in.pth', prefix='teacher.backbone.'))"),
    (lambda: dict(teacher={}, student={}), [], "'teacher'; 'student', but no weights"),
]


@pytest.mark.parametrize(('content', 'options', 'message'), REFUSED)
def test_unknown_files_are_refused(convert, tmp_path, content, options, message):
    torch.save(content(), tmp_path / 'in.pth')
    assert message in convert(*options, fails=True)
    assert [path.name for path in tmp_path.iterdir()] == ['in.pth']


def test_damaged_files_are_compared_with_the_nearest_model(convert, tmp_path):
    state = official_state('xcit_nano_12_p16__timm')
    del state['blocks.3.attn.qkv.weight']
    torch.save(state, tmp_path / 'in.pth')
    message = convert(fails=True)
    assert 'in.pth does not fit xcit_nano_12_p16: the file is nearly this model' in message
    assert 'Missing in the file: 1 of 350 weights: blocks.3.attn.qkv.weight' in message


def test_nothing_is_overwritten_by_default(convert, tmp_path):
    (tmp_path / 'out.pth').write_text('precious')
    assert '--overwrite replaces it' in convert(fails=True)
    assert (tmp_path / 'out.pth').read_text() == 'precious'


def test_missing_and_unsafe_files_are_named(convert, tmp_path):
    assert 'FileNotFoundError: There is no checkpoint file at' in convert(fails=True)
    weights = official_state('xcit_nano_12_p16__timm')
    torch.save(dict(model=weights, more=Path.cwd), tmp_path / 'in.pth')
    assert 'UnsafeCheckpointError' in convert(fails=True)
    convert('--trust-checkpoint')
