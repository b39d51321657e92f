from pathlib import Path

import pytest
import torch
from helpers import official_state

from mmbixt.backbones import BiFormer, BiSASwin, BiXT, XCiT

CASES = {  # layout: what the tool says it is, the model that the result fills
    'bixt_ti_l64_d13_p16': ('bixt_ti_l64_d13_p16 (mmbixt.BiXT) or bixt_ti_l64_d13_p16s8', BiXT),
    'xcit_nano_12_p16__timm': (
        "xcit_nano_12_p16 (mmbixt.XCiT, arch='nano12', patch_size=16)\n",
        lambda: XCiT('nano12'),
    ),
    'biformer_stl_nchw': ('biformer_stl_nchw (mmbixt.BiFormer', lambda: BiFormer('stl-nchw')),
    'swin_tiny_microsoft': ('swin_tiny (mmbixt.BiSASwin', lambda: BiSASwin(bisa_stages=())),
}


@pytest.fixture
def convert(within, tmp_path):
    """Runs the tool: its code, its output and its errors."""

    def convert(*options, source='in.pth', target='out.pth'):
        done = within('convert_checkpoint.py', tmp_path / source, tmp_path / target, *options)
        return done.returncode, done.stdout, done.stderr

    return convert


@pytest.mark.parametrize('layout', CASES)
def test_layouts_are_recognised_and_the_result_loads(convert, tmp_path, layout):
    what, make = CASES[layout]
    torch.save(dict(model=official_state(layout)), tmp_path / 'in.pth')
    code, output, errors = convert()
    assert code == 0, errors
    assert f'in.pth is {what}' in output
    assert [line.split()[0] for line in output.splitlines()[1:5]] == [
        'mapped',
        'renamed',
        'dropped',
        'missing',
    ]
    done = torch.load(tmp_path / 'out.pth')
    assert done['meta']['source'].endswith('in.pth')
    direct, converted = make(), make()
    direct.load_state_dict(official_state(layout))
    converted.load_state_dict(done['state_dict'])
    fresh = ('norm', 'extra_norms.')  # in their initial state in both
    for key, value in direct.state_dict().items():
        assert torch.equal(value, converted.state_dict()[key]) or key.startswith(fresh)


def test_whole_model(call, tmp_path):
    state = official_state('whole__sem_fpn_xcit_tiny_12_p16')
    torch.save(dict(meta={}, state_dict=state), tmp_path / 'in.pth')
    files = tmp_path / 'in.pth', tmp_path / 'new/out.pth'
    done = call('convert_checkpoint.py', *files, '--verbose')
    assert done.returncode == 0
    assert 'a whole model of the XCiT authors, xcit_tiny_12_p16 (mmbixt.XCiT' in done.stdout
    assert 'backbone.fpn2.0.bias -> neck.0.fpn2.0.bias' in done.stdout
    assert 'neck.0.fpn2.0.bias' in torch.load(tmp_path / 'new/out.pth')['state_dict']


@pytest.mark.parametrize(
    ('state', 'options', 'message'),
    [
        ({'conv.weight': torch.zeros(3)}, [], 'None of the 38 published models has these weights'),
        (official_state('xcit_nano_12_p16'), ['--arch', 'xcit_tiny_12_p16'], 'does not fit'),
    ],
)
def test_what_is_unknown_is_refused_and_nothing_written(convert, tmp_path, state, options, message):
    torch.save(state, tmp_path / 'in.pth')
    code, _, errors = convert(*options)
    assert code == 1
    assert message in errors
    assert 'Traceback' not in errors
    assert [path.name for path in tmp_path.iterdir()] == ['in.pth']


def test_half_a_whole_model_is_refused(convert, tmp_path):
    state = official_state('whole__sem_fpn_xcit_tiny_12_p16')
    for part in ('backbone.blocks.11.', 'backbone.fpn1.3.'):
        rest = {key: value for key, value in state.items() if not key.startswith(part)}
        torch.save(dict(state_dict=rest), tmp_path / 'in.pth')
        code, _, errors = convert()
        assert code == 1
        assert 'CheckpointMismatchError' in errors
    torch.save(dict(state_dict=state), tmp_path / 'in.pth')
    code, _, errors = convert('--arch', 'xcit_tiny_24_p16')
    assert code == 1
    assert 'does not fit xcit_tiny_24_p16' in errors


@pytest.mark.parametrize(
    ('content', 'message'),
    [
        ([1, 2], 'holds a list, but no weights'),
        (torch.zeros(3), 'holds a Tensor, but no weights'),
        (dict(teacher={}, student={}), "holds a dict of 'teacher'; 'student', but no weights"),
    ],
)
def test_files_without_weights_are_described(convert, tmp_path, content, message):
    torch.save(content, tmp_path / 'in.pth')
    code, _, errors = convert()
    assert code == 1
    assert message in errors
    assert 'Traceback' not in errors


def test_nothing_is_overwritten_unasked(convert, tmp_path):
    (tmp_path / 'out.pth').write_text('precious')
    code, _, errors = convert()
    assert code == 2
    assert '--overwrite replaces it' in errors
    assert (tmp_path / 'out.pth').read_text() == 'precious'


def test_missing_and_unsafe_files_are_named(convert, tmp_path):
    code, _, errors = convert(source='nowhere.pth')
    assert code == 1
    assert errors.startswith('FileNotFoundError: There is no checkpoint file at')
    weights = official_state('xcit_nano_12_p16__timm')
    torch.save(dict(model=weights, more=Path.cwd), tmp_path / 'bad.pth')
    code, _, errors = convert(source='bad.pth')
    assert code == 1
    assert errors.startswith('UnsafeCheckpointError')
    code, _, errors = convert('--trust-checkpoint', source='bad.pth')
    assert code == 0, errors
