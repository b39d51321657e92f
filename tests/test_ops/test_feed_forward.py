import torch
from op_checks import assert_same, learned, mlp, with_gradients
from torch._dynamo.testing import CompileCounter

from mmbixt.ops import dispatch


def test_the_number_of_tokens_is_no_constant_to_a_compiler(fresh_compiler, monkeypatch):
    monkeypatch.setattr(dispatch, 'SCORES', 2**8)  # several pieces of tokens
    compute, (_, *weights) = mlp((2, 9), 8, 12)
    counter = CompileCounter()
    compiled = torch.compile(compute, fullgraph=True, backend=counter, dynamic=True)
    for tokens in (9, 40, 77):
        (x,) = learned((2, tokens, 8))
        found, expected = (with_gradients(f, [x, *weights]) for f in (compiled, compute))
        assert_same(found, expected, 1e-6)
    assert counter.frame_count == 1
