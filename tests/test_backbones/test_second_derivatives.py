"""Derivatives by autograd and torch.func: all of them by the definitions, first ones otherwise."""

import pytest
import torch
from helpers import image
from torch.func import functional_call, grad, jvp, stack_module_state, vmap
from variants import FAMILIES, build

from mmbixt.attention import by_definition


class Loss:
    """A loss of the weights and images, in float64."""

    def __init__(self, family):
        self.backbone = build(FAMILIES[family]).double().eval()
        self.weights = dict(self.backbone.named_parameters())
        self.images = image(2, 48, 32).double()

    def __call__(self, weights, x=None):
        outs = functional_call(self.backbone, weights, (self.images if x is None else x,))
        return sum((out + 0.3).sin().mean() for out in outs)

    def gradient(self, weights):
        return flat(torch.autograd.grad(self(weights), list(weights.values())))

    def product(self, vector):
        """The Hessian times a vector, by autograd."""
        weights = list(self.weights.values())
        first = torch.autograd.grad(self(self.weights), weights, create_graph=True)
        along = (flat(first) * flat(vector.values())).sum()
        options = dict(allow_unused=True, materialize_grads=True)
        return flat(torch.autograd.grad(along, weights, **options))


def flat(parts):
    return torch.cat([x.flatten() for x in parts])


def assert_near(found, expected, tolerance=1e-9):
    assert (found - expected).norm() <= tolerance * expected.norm()


@pytest.mark.parametrize('family', FAMILIES)
def test_second_and_forward_derivatives_by_definition(family):
    loss = Loss(family)
    weights, vector = loss.weights, {k: torch.randn_like(p) for k, p in loss.weights.items()}

    def moved(step):
        moved = {k: (p + step * vector[k]).detach().requires_grad_() for k, p in weights.items()}
        return loss.gradient(moved)

    with by_definition():
        expected = loss.product(vector)
        assert_near(expected, (moved(1e-6) - moved(-1e-6)) / 2e-6, 1e-5)
        over_reverse = jvp(grad(loss), (weights,), (vector,))
        assert_near(flat(over_reverse[1].values()), expected)


@pytest.mark.parametrize('family', FAMILIES)
def test_gradients_at_other_weights(family):
    """A backward pass after ``functional_call``, when the module has its own weights again."""
    loss = Loss(family)
    weights = {k: (1.1 * p).detach().requires_grad_() for k, p in loss.weights.items()}
    found = loss.gradient(weights)
    for name, p in loss.weights.items():
        p.data.copy_(weights[name])
    assert_near(found, loss.gradient(loss.weights))


@pytest.mark.parametrize('family', FAMILIES)
def test_gradients_of_single_images_and_ensembles(family):
    loss, other = Loss(family), build(FAMILIES[family]).double().eval()
    torch.nn.init.normal_(next(other.parameters()))
    of_each = vmap(grad(loss), in_dims=(None, 0))(loss.weights, loss.images[:, None])
    for i in range(2):
        expected = grad(loss)(loss.weights, loss.images[i : i + 1])
        assert_near(flat(g[i] for g in of_each.values()), flat(expected.values()))
    states = stack_module_state([loss.backbone, other])
    outs = vmap(lambda *state: functional_call(other, state, (loss.images,)))(*states)
    for i, network in enumerate((loss.backbone, other)):
        assert_near(flat(out[i] for out in outs), flat(network(loss.images)))
