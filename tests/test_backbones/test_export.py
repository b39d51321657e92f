"""An exported backbone is right for other batches, and some for images of other sizes."""

import pytest
import torch
from helpers import assert_close, image
from torch.export import Dim
from variants import VARIANTS, build

SIZES = ((1, 240, 240), (2, 257, 240), (3, 240, 300), (1, 289, 301), (1, 64, 64), (2, 97, 130))
EXAMPLE = (2, 240, 272)
BATCHES = (EXAMPLE, (1, 240, 272), (3, 240, 272))
DYNAMIC = ({0: Dim.AUTO, 2: Dim.AUTO, 3: Dim.AUTO},)
FREE = 'bixt', 'bixt conv, LPI', 'xcit /8, layer scale'
FIXED = 'biformer', 'biformer stl', 'bisa, learned, early stages'


def assert_same(run, backbone, sizes):
    for size in sizes:
        x = image(*size)
        assert_close(run(x), backbone(x), 1e-4)


def in_onnxruntime(program, file):
    """A program of ``torch.export``, by way of an ONNX file."""
    import onnxruntime

    torch.onnx.export(program, dynamo=True, verbose=False).save(file)
    session = onnxruntime.InferenceSession(file)
    (given,) = session.get_inputs()

    def run(x):
        return [torch.from_numpy(out) for out in session.run(None, {given.name: x.numpy()})]

    return run


@pytest.mark.zoo
@pytest.mark.parametrize('name', FREE + FIXED)
@torch.no_grad()
def test_exported_once_it_takes_other_batches_and_sizes(name, tmp_path):
    backbone = build(VARIANTS[name]).eval()
    assert backbone.has_free_sizes == (name in FREE)
    free, sizes = (DYNAMIC, SIZES) if name in FREE else (({0: Dim.AUTO},), BATCHES)
    program = torch.export.export(backbone, (image(*EXAMPLE),), dynamic_shapes=free)
    assert 'mmbixt' not in str(program.graph)
    assert_same(program.module(), backbone, sizes)
    assert_same(in_onnxruntime(program, tmp_path / 'backbone.onnx'), backbone, sizes)
