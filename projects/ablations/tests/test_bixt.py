"""Sequential attention is two stock attentions, one after the other; in iterative attention the
tokens never change, and layers share weights."""

import pytest
import torch
from helpers import assert_close, image
from torch import nn

from projects.ablations import BiXTAblation, SequentialAttention

SMALL = dict(embed_dims=32, num_heads=2, depth=3)


@pytest.mark.parametrize('share_first', [True, False])
def test_iterative_updates_only_latents_and_shares_a_cross_attention(share_first):
    options = dict(attention='iterative', self_attentions=2, share_first=share_first)
    with pytest.raises(ValueError, match='needs latent_layer=True'):
        BiXTAblation(SMALL, **options)
    options |= dict(num_latents=5, latent_layer=True)
    torch.manual_seed(0)
    backbone = BiXTAblation(SMALL, **options)
    crosses = {layer.cross_attention_latents_token for layer in backbone.blocks}
    assert len(crosses) == (1 if share_first else 2)
    x = image(2, 48, 32)
    maps, latents = backbone(x)
    assert latents.shape == (2, 5, 32)
    _, tokens, grid = backbone.embed(x)
    assert_close(maps[-1], tokens.transpose(1, 2).unflatten(2, grid))
    latents.sin().sum().backward()
    assert not [name for name, p in backbone.named_parameters() if p.grad is None]
    again = BiXTAblation(SMALL, with_cp=True, **options)  # of other weights
    again.load_state_dict(backbone.state_dict())
    out = again(x)[1]
    assert torch.equal(out, latents)
    out.sin().sum().backward()
    assert_close([p.grad for p in again.parameters()], [p.grad for p in backbone.parameters()])
    assert backbone.get_layer_depth('blocks.2.self_attention_latents.1.norm1.weight') == (3, 5)
    frozen = BiXTAblation(SMALL, frozen_stages=1, drop_path_rate=0.5, **options).train()
    assert not any(p.requires_grad for p in frozen.blocks[0].parameters())
    rates = [layer.self_attention_latents[0].drop_path.drop_prob for layer in frozen.blocks]
    assert rates == [0, 0.25, 0.5]
    sizes = ({0: torch.export.Dim.AUTO, 2: torch.export.Dim.AUTO},)
    program = torch.export.export(backbone.eval(), (x,), dynamic_shapes=sizes).module()
    assert_close(program(image(3, 64, 32))[1], backbone(image(3, 64, 32))[1])


def stock(*layers, out):
    """torch's attention with the weights of projections to q, k and v, each of some of them."""
    attention = nn.MultiheadAttention(24, 3, batch_first=True)
    weights = {f'in_proj_{kind}': [getattr(x, kind) for x in layers] for kind in ('weight', 'bias')}
    state = {name: torch.cat(parts) for name, parts in weights.items()}
    attention.load_state_dict(state | {f'out_proj.{k}': v for k, v in out.state_dict().items()})
    return attention


def test_equals_two_stock_attentions():
    attention = SequentialAttention(24, 3)
    latents, tokens = torch.randn(1, 5, 24), torch.randn(2, 9, 24)
    q, k_v = nn.Linear(24, 24), nn.Linear(24, 48)
    for kind in ('weight', 'bias'):  # queries of the tokens, keys and values
        parts = getattr(attention.qkv_patches, kind).detach().split((24, 48))
        for layer, part in zip((q, k_v), parts, strict=True):
            setattr(layer, kind, nn.Parameter(part))
    first = stock(attention.q_latents, k_v, out=attention.proj_lat)
    second = stock(q, attention.kv_latents, out=attention.proj_pat)
    all_latents = latents.expand(2, -1, -1)
    for_latents, _ = first(all_latents, tokens, tokens)
    updated = all_latents + for_latents
    for_tokens, _ = second(tokens, updated, updated)
    assert_close(attention(latents, tokens), (for_latents, for_tokens))
