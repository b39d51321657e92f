"""Attentions of large or equal tokens in half precision on a CPU are as exact as their definitions,
and finite where these are. (tests/test_gpu.py has ordinary tokens.)"""

import pytest
import torch
from cases import bisa, bixt, plain, routed, windowed, xca
from helpers import others_in_zoo
from parity import PRECISIONS, assert_as_exact

# Which inputs are tokens (the others are weights). Odd numbers of keys: the weights of keys that
# are alike would else be exact.
CASES = {
    'latents shared by the batch': (bixt, (2, 1, 3, 30, 100, 32), range(4)),
    'xca': (xca, (2, 250, 60, 2), [0]),
    'routing, padding': (routed, (2, 15, 9, 3, 8, 2, True), range(3)),
    'inverse': (bisa, ((2, 4), 49, 3, 16, (4, 3)), [0]),
    'attention, masked': (plain, (2, 3, 49, 49, 16, True), range(3)),
    'windows': (windowed, ((9, 10), 3), [0]),
}
TOKENS = {
    'large': lambda x: 1e3 * x,
    'all alike': lambda x: torch.randn(x.shape[-1]).expand_as(x),
}
HALF = [name for name in PRECISIONS if name not in ('fp32', 'TF32')]


@pytest.mark.parametrize('precision', others_in_zoo(HALF, ['fp16', 'amp bf16']))
@pytest.mark.parametrize('tokens', TOKENS)
@pytest.mark.parametrize('name', CASES)
def test_large_and_equal_tokens(name, tokens, precision):
    make, shape, which = CASES[name]

    def case():
        function, inputs = make(*shape)
        for i in which:
            inputs[i] = TOKENS[tokens](inputs[i].detach()).requires_grad_()
        return function, inputs

    assert_as_exact(case, PRECISIONS[precision], may_overflow=True)
