import pytest
import torch

from mmbixt.layers.patch_embed import LinearPatchEmbed


def _results(embed, image, is_autocast):
    """Tokens and gradients in bfloat16."""
    with torch.autocast('cpu', torch.bfloat16, enabled=is_autocast):
        out = embed(image)
    assert out.dtype == torch.bfloat16
    return out, *torch.autograd.grad(out.float().square().sum(), list(embed.parameters()))


@pytest.mark.parametrize('is_autocast', [True, False])
@pytest.mark.parametrize('stride', [16, 8, 4])
def test_half_precision_is_as_exact_as_the_plain_layer(is_autocast, stride):
    torch.manual_seed(0)
    image, embed = torch.randn(2, 3, 40, 64), LinearPatchEmbed(24, stride).double()
    out = embed(image.double())
    exact = out, *torch.autograd.grad(out.square().sum(), list(embed.parameters()))
    embed.float()
    if not is_autocast:
        embed, image = embed.bfloat16(), image.bfloat16()
    found = _results(embed, image, is_autocast)
    calls = []
    embed.proj.register_forward_hook(lambda *_: calls.append(1))
    plain = _results(embed, image, is_autocast)
    assert calls  # a layer that something looks at is called
    for x, one, other in zip(exact, found, plain, strict=True):
        assert (one - x).norm() <= 1.2 * (other - x).norm() < 0.02 * x.norm()


def test_autocast_leaves_float64_alone():
    embed = LinearPatchEmbed(24).double()
    with torch.autocast('cpu', torch.bfloat16):
        assert embed(torch.zeros(1, 3, 32, 32, dtype=torch.float64)).dtype == torch.float64
