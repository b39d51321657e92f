"""Sequential attention is two stock attentions, one after the other."""

import torch
from helpers import assert_close
from torch import nn

from projects.bixt_ablations import SequentialAttention


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
