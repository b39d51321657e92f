import numpy as np
import pytest
import torch
from helpers import assert_close
from op_checks import CASES, inverse
from reference import misa_naive

from mmbixt.ops import self_attention, use_ops
from mmbixt.ops.inverse_attention import bidirectional_self_attention_maps


@pytest.mark.parametrize('path', ['portable', 'reference'])
@pytest.mark.parametrize('shape', CASES[inverse].values(), ids=CASES[inverse])
def test_is_algorithm_1_with_a_tensor_per_pair(shape, path):
    attend, inputs = inverse(*shape, dtype=torch.float64)
    q, k, v, q_hat, v_hat, G, *bias = inputs = [x.detach() for x in inputs]
    scale = shape[2] ** -0.5
    with use_ops(path):
        plain, inverted = attend(*inputs)
        alone = self_attention(q, k, v, scale, *bias)
    over_keys, over_queries = bidirectional_self_attention_maps(q, k, scale, *bias)
    assert_close(over_keys @ v, alone, 1e-12)
    assert_close(over_queries.sum(-2), torch.ones_like(over_queries[..., 0, :]), 1e-12)
    scores = sum(bias, q @ k.transpose(-2, -1) * scale)
    groups = (x.flatten(0, -4).numpy() for x in (scores, v, q_hat, v_hat))
    outputs = (x.transpose(-3, -2).flatten(-2).flatten(0, -3) for x in (plain, inverted, alone))
    for m, v_, q_hat_, v_hat_, *ours in zip(*groups, *outputs, strict=True):
        msa = misa_naive.msa(m, v_)
        misa = misa_naive.misa_naive(m, q_hat_, v_hat_, G.numpy())
        for actual, expected in zip(ours, (msa, misa, msa), strict=True):
            np.testing.assert_allclose(actual.numpy(), expected, rtol=0, atol=1e-10)
