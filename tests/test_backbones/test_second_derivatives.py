"""Second derivatives, on the reference path and as errors on the others; torch.func."""

import pytest
import timm
import torch
from helpers import image
from torch.autograd import forward_ad
from torch.func import functional_call, grad, jvp, stack_module_state, vmap
from variants import FAMILIES, build

from mmbixt.ops import use_ops


def product(backbone, x, vector):
    """The Hessian times a vector."""
    loss = sum((feature_map + 0.3).sin().mean() for feature_map in backbone(x))
    # with named inputs, autograd ignores once_differentiable
    parameters = list(backbone.parameters())
    first = torch.autograd.grad(loss, parameters, create_graph=True)
    along = sum((g * v).sum() for g, v in zip(first, vector, strict=True))
    options = dict(allow_unused=True, materialize_grads=True)
    return torch.cat([g.flatten() for g in torch.autograd.grad(along, parameters, **options)])


@pytest.mark.parametrize('path', ['cpu', 'auto', 'portable'])
@pytest.mark.parametrize('variant', FAMILIES)
def test_fast_paths_are_right_or_raise_an_error(variant, path):
    """On some paths a backbone has only plain operations, which have all derivatives."""
    backbone, x = build(FAMILIES[variant]).eval(), image(1, 48, 32)
    vector = [torch.randn_like(p) for p in backbone.parameters()]
    try:
        with use_ops(path):
            found = product(backbone, x, vector)
    except RuntimeError as error:
        if 'set MMBIXT_OPS=reference' not in str(error):
            raise
        return
    with use_ops('reference'):
        expected = product(backbone, x, vector)
    assert (found - expected).norm() < 1e-3 * expected.norm()


@pytest.mark.parametrize('variant', FAMILIES)
def test_batches_of_gradients_and_tangents_raise_an_error(variant):
    """In the backward pass of operators, after a forward pass without them."""
    backbone, x = build(FAMILIES[variant]).eval(), image(1, 48, 32)
    weights = list(backbone.parameters())
    with use_ops('cpu'):
        out = backbone(x)[-1]
    ones = torch.ones_like(out)
    options = dict(retain_graph=True, allow_unused=True)
    with pytest.raises(RuntimeError, match='set MMBIXT_OPS=reference'):
        torch.autograd.grad(out, weights, ones[None], is_grads_batched=True, **options)
    with pytest.raises(RuntimeError, match='set MMBIXT_OPS=reference'):
        vmap(lambda v: torch.autograd.grad(out, weights, v, **options))(ones[None])
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match='set MMBIXT_OPS=reference'):
        torch.autograd.grad(out, weights, forward_ad.make_dual(ones, ones), **options)


@pytest.mark.parametrize('variant', FAMILIES)
def test_torch_func(variant):
    """Gradients of single images, an ensemble, derivatives along a vector, a Hessian's product."""
    backbone, other = (build(FAMILIES[variant]).eval() for _ in range(2))
    x, weights = image(2, 48, 32), dict(backbone.named_parameters())

    def loss(weights, x):
        return sum((out + 0.3).sin().mean() for out in functional_call(backbone, weights, (x,)))

    of_each = vmap(grad(loss), in_dims=(None, 0))(weights, x[:, None])
    for i in range(2):
        expected = torch.autograd.grad(loss(weights, x[i : i + 1]), list(weights.values()))
        torch.testing.assert_close(tuple(g[i] for g in of_each.values()), expected)

    states = stack_module_state([backbone, other])
    outs = vmap(lambda *state: functional_call(backbone, state, (x,)))(*states)
    for i, network in enumerate((backbone, other)):
        torch.testing.assert_close(tuple(out[i] for out in outs), tuple(network(x)))

    vector = {name: torch.randn_like(value) for name, value in weights.items()}

    def slope(weights):
        return sum((g * vector[name]).sum() for name, g in grad(loss)(weights, x).items())

    # the weights require gradients outside of torch.func, too, where a backward pass may follow
    found = torch.autograd.grad(slope(weights), list(weights.values()), allow_unused=True)
    torch.testing.assert_close(found, tuple(grad(slope)(weights).values()), rtol=1e-3, atol=1e-3)

    along = jvp(lambda weights: loss(weights, x), (weights,), (vector,))[1]
    torch.testing.assert_close(along, slope(weights), rtol=1e-4, atol=1e-5)
    with torch.no_grad():  # timm's fused attention has none
        for module in backbone.modules():
            if isinstance(module, timm.layers.Attention):
                module.fused_attn = False
        direction = torch.randn_like(x)
        along = jvp(lambda x: loss(weights, x), (x,), (direction,))[1]
    expected = (grad(loss, argnums=1)(weights, x) * direction).sum()
    torch.testing.assert_close(along, expected, rtol=1e-4, atol=1e-5)
    forward_over_reverse = jvp(grad(lambda weights: loss(weights, x)), (weights,), (vector,))[1]
    torch.testing.assert_close(grad(slope)(weights), forward_over_reverse, rtol=1e-3, atol=1e-3)
