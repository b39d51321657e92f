"""Products of the Hessian with a vector: right on the reference path, or an error that names it."""

import pytest
import torch
from helpers import image
from variants import FAMILIES, build

from mmbixt.ops import use_ops

VARIANTS = [name for name in FAMILIES if name != 'biformer']  # where it routes is not smooth
STEP = 1e-5


def gradients(backbone, x, **options):
    loss = sum((feature_map + 0.3).sin().mean() for feature_map in backbone(x))
    return torch.autograd.grad(loss, list(backbone.parameters()), **options)


def flat(tensors):
    return torch.cat([tensor.flatten() for tensor in tensors])


def product(backbone, x, vector):
    first = gradients(backbone, x, create_graph=True)
    along = sum((g * v).sum() for g, v in zip(first, vector, strict=True))
    # with the inputs named, autograd passes over once_differentiable
    parameters = list(backbone.parameters())
    return flat(torch.autograd.grad(along, parameters, allow_unused=True, materialize_grads=True))


@pytest.mark.parametrize('variant', VARIANTS)
def test_reference_path(variant):
    backbone, x = build(FAMILIES[variant]).double().eval(), image(1, 48, 32).double()
    vector, found = [torch.randn_like(p) for p in backbone.parameters()], []
    with use_ops('reference'):
        second = product(backbone, x, vector)
        for step in (STEP, -2 * STEP):
            with torch.no_grad():
                for parameter, direction in zip(backbone.parameters(), vector, strict=True):
                    parameter += step * direction
            found.append(flat(gradients(backbone, x)))
    expected = (found[0] - found[1]) / (2 * STEP)
    assert (second - expected).norm() < 1e-4 * expected.norm()


@pytest.mark.parametrize('variant', FAMILIES)
def test_fast_operators_refuse(variant):
    backbone, x = build(FAMILIES[variant]).eval(), image(1, 48, 32)
    vector = list(backbone.parameters())
    with use_ops('cpu'), pytest.raises(RuntimeError, match='set MMBIXT_OPS=reference'):
        product(backbone, x, vector)
