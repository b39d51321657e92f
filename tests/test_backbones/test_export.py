"""Exported with symbols for sizes, a backbone is right for images of other sizes."""

import pytest
import torch
from helpers import assert_close, image
from torch.export import Dim
from variants import VARIANTS, build

SIZES = ((1, 240, 240), (2, 257, 240), (3, 240, 300), (1, 289, 301))
EXAMPLE = (2, 240, 272)
DYNAMIC = ({0: Dim.AUTO, 2: Dim.AUTO, 3: Dim.AUTO},)
PADDED = 'bisa, learned, instance norm, early stages'  # whose windows are
# what is exported differently; not BiFormer's stl-nchw, whose number of regions depends on the size
EXPORTED = 'bixt conv, LPI', 'xcit /8, layer scale', 'biformer', 'biformer stl', PADDED


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
@pytest.mark.parametrize('name', EXPORTED)
@torch.no_grad()
def test_exported_once_it_takes_other_batches_and_sizes(name, tmp_path):
    backbone = build(VARIANTS[name]).eval()
    program = torch.export.export(backbone, (image(*EXAMPLE),), dynamic_shapes=DYNAMIC)
    assert 'mmbixt' not in str(program.graph)
    assert_same(program.module(), backbone, SIZES)
    run = in_onnxruntime(program, tmp_path / 'backbone.onnx')
    assert_same(run, backbone, (*SIZES, (1, 64, 64), (2, 97, 130), (1, 225, 290)))


def test_regions_by_the_size_are_exported_for_one_size():
    backbone = build(VARIANTS['biformer, regions by the size, no position convolution']).eval()
    x = image(1, 96, 64)
    assert_same(torch.export.export(backbone, (x,)).module(), backbone, [(1, 96, 64)])
    with pytest.raises(ValueError, match="num_regions='auto' can be exported for one size"):
        torch.export.export(backbone, (x,), dynamic_shapes=DYNAMIC)
