import torch
from helpers import assert_close

from mmbixt.ops import bidirectional_attention, use_ops
from mmbixt.ops.bidirectional_attention import bidirectional_attention_maps


def test_it_is_the_formula_and_the_maps_are_what_it_attends_with():
    sizes = [(1, 1, 3, 4), (1, 1, 5, 4)] * 2
    r_latents, r_tokens, v_latents, v_tokens = (torch.randn(s, dtype=torch.float64) for s in sizes)
    similarity = torch.exp(0.5 * r_latents[0, 0] @ r_tokens[0, 0].T)
    over_tokens, over_latents = bidirectional_attention_maps(r_latents, r_tokens, 0.5)
    for path in ('reference', 'portable'):
        with use_ops(path):
            latents, tokens = bidirectional_attention(
                r_latents, r_tokens, v_latents, v_tokens, scale=0.5
            )
            nothing, same = bidirectional_attention(r_latents, r_tokens, v_latents, None, 0.5)
        for i in range(3):
            expected = similarity[i] @ v_tokens[0, 0] / similarity[i].sum()
            assert_close(latents[0, 0, i], expected, 1e-12)
        for j in range(5):
            expected = similarity[:, j] @ v_latents[0, 0] / similarity[:, j].sum()
            assert_close(tokens[0, 0, j], expected, 1e-12)
        assert nothing is None
        assert torch.equal(tokens, same)
        assert_close(over_tokens @ v_tokens, latents, 1e-12)
        assert_close(over_latents.transpose(-2, -1) @ v_latents, tokens, 1e-12)
