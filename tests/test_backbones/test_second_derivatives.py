"""Derivatives by autograd and torch.func: all of them by the definitions, first ones otherwise."""

import pytest
import torch
from helpers import image
from torch.func import functional_call, grad, jvp, stack_module_state, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from variants import FAMILIES, build

from mmbixt.attention import by_definition

DEFINED = {'by definition': by_definition, 'unfused': lambda: sdpa_kernel(SDPBackend.MATH)}
FUSED = ('bixt conv, LPI', 'biformer')  # their attentions are fused kernels


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


@pytest.mark.parametrize('defined', DEFINED.values(), ids=DEFINED)
@pytest.mark.parametrize('family', FAMILIES)
def test_second_and_forward_derivatives(family, defined):
    loss = Loss(family)
    weights, vector = loss.weights, {k: torch.randn_like(p) for k, p in loss.weights.items()}

    def moved(step):
        moved = {k: (p + step * vector[k]).detach().requires_grad_() for k, p in weights.items()}
        return loss.gradient(moved)

    def slope(weights):
        return sum((g * vector[name]).sum() for name, g in grad(loss)(weights).items())

    with defined():
        expected = loss.product(vector)
        assert_near(expected, (moved(1e-6) - moved(-1e-6)) / 2e-6, 1e-5)
        assert_near(flat(grad(slope)(weights).values()), expected)
        if defined is not by_definition:  # functions of mmbixt have no forward-mode derivatives
            return
        over_reverse = jvp(grad(loss), (weights,), (vector,))
        assert_near(flat(over_reverse[1].values()), expected)
        assert_near(jvp(loss, (weights,), (vector,))[1], slope(weights))
        direction = torch.randn_like(loss.images)
        along = jvp(lambda x: loss(weights, x), (loss.images,), (direction,))[1]
        assert_near(along, (grad(loss, argnums=1)(weights, loss.images) * direction).sum())


@pytest.mark.parametrize('family', FAMILIES)
def test_gradients_at_other_weights(family):
    """A backward pass after ``functional_call``, when the module has its own weights again."""
    loss = Loss(family)
    weights = {k: (1.1 * p).detach().requires_grad_() for k, p in loss.weights.items()}
    found = loss.gradient(weights)
    for name, p in loss.weights.items():
        p.data.copy_(weights[name])
    assert_near(found, loss.gradient(loss.weights))


@pytest.mark.parametrize('formulation', [None, *DEFINED.values()], ids=['fast', *DEFINED])
@pytest.mark.parametrize('family', FAMILIES)
def test_gradients_of_single_images_and_ensembles(family, formulation):
    loss, other = Loss(family), build(FAMILIES[family]).double().eval()
    torch.nn.init.normal_(next(other.parameters()))
    with formulation() if formulation else torch.enable_grad():
        of_each = vmap(grad(loss), in_dims=(None, 0))(loss.weights, loss.images[:, None])
        for i in range(2):
            expected = grad(loss)(loss.weights, loss.images[i : i + 1])
            assert_near(flat(g[i] for g in of_each.values()), flat(expected.values()))
        states = stack_module_state([loss.backbone, other])
        outs = vmap(lambda *state: functional_call(other, state, (loss.images,)))(*states)
        for i, network in enumerate((loss.backbone, other)):
            assert_near(flat(out[i] for out in outs), flat(network(loss.images)))


@pytest.mark.parametrize('family', FAMILIES)
def test_fused_kernels_have_first_derivatives_only(family):
    """torch says so, where the result would be wrong otherwise."""
    loss = Loss(family)
    vector = {name: torch.randn_like(p) for name, p in loss.weights.items()}
    if family in FUSED:
        with pytest.raises(RuntimeError, match=r'scaled_dot_product.*backward.*not implemented'):
            loss.product(vector)
        return
    found = loss.product(vector)
    with by_definition():
        assert_near(found, loss.product(vector))
