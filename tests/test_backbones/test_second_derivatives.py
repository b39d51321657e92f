"""Derivatives by autograd and torch.func: all of them by the definitions, first ones otherwise."""

import pytest
import torch
from helpers import formulation, image
from torch.func import functional_call, grad, jvp, vmap
from variants import FAMILIES, build

from mmbixt.attention import by_definition

IMAGES = image(2, 48, 32).double()


def make(family):
    """A loss of weights and images by a network in float64, and its weights."""
    backbone = build(FAMILIES[family]).double().eval()

    def loss(weights, x=IMAGES):
        outs = functional_call(backbone, weights, (x,))
        return sum((out + 0.3).sin().mean() for out in outs)

    return loss, dict(backbone.named_parameters())


def flat(parts):
    return torch.cat([x.flatten() for x in parts])


def assert_near(found, expected, tolerance=1e-9):
    assert (found - expected).norm() <= tolerance * expected.norm()


@pytest.mark.parametrize('family', FAMILIES)
def test_second_and_forward_derivatives_by_definition(family):
    """The Hessian times a vector: backward and forward through the gradient, and by differences."""
    loss, weights = make(family)
    vector = {k: torch.randn_like(p) for k, p in weights.items()}

    def gradient(weights):
        return flat(grad(loss)(weights).values())

    def moved(step):
        return gradient({k: p + step * vector[k] for k, p in weights.items()})

    with by_definition():
        product = jvp(gradient, (weights,), (vector,))[1]
        assert_near(product, (moved(1e-6) - moved(-1e-6)) / 2e-6, 1e-5)
        backward = grad(lambda weights: gradient(weights) @ flat(vector.values()))(weights)
        assert_near(flat(backward.values()), product)


@pytest.mark.parametrize('family', FAMILIES)
def test_gradients_of_single_images(family):
    """BiSA is checkpointed, which torch.func refuses, except for its definition."""
    loss, weights = make(family)
    with formulation('definition' if family == 'bisa' else 'fast'):
        of_each = vmap(grad(loss), in_dims=(None, 0))(weights, IMAGES[:, None])
        for i in range(2):
            expected = grad(loss)(weights, IMAGES[i : i + 1])
            assert_near(flat(g[i] for g in of_each.values()), flat(expected.values()))
