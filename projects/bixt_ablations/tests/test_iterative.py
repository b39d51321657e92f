"""Iterative attention: the tokens never change, and layers share weights."""

import pytest
import torch
from helpers import assert_close, image

from projects.bixt_ablations import BiXTAblation

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
    tokens, grid = backbone.tokenize(x)
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
