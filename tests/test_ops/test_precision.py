"""In half precision the error of every path is at most 1.5 times that of the plain order, or below
the unit roundoff; and results are finite where the plain order's are.

What a GPU would take is computed on a processor.
"""

from collections import Counter
from contextlib import nullcontext

import pytest
import torch
from helpers import others_in_zoo
from op_checks import alone, bixt, inverse, learned, linear, mlp, norm, routing, windows, xca
from torch.nn.attention import SDPBackend, sdpa_kernel

from mmbixt import ops
from mmbixt.ops import dispatch
from mmbixt.ops.residual import add_scaled

DRAWS = 3  # of random numbers, whose errors are added up
ENOUGH = 500  # values of a tensor in all its draws, so that one rounding does not decide
MOST_DRAWS = 12


def residual(*shape, **options):
    def add(x, update, scale):
        return x + scale * update if ops.ops_path() == 'reference' else add_scaled(x, update, scale)

    return add, learned(shape, shape, shape[-1:], **options)


# Of an op the shape, and which inputs are tokens (the others are weights). Odd numbers of keys:
# the weights of keys that are alike would else be exact.
CASES = {
    'latents shared by the batch': (bixt, (2, 1, 3, 30, 100, 32), range(4)),
    'latents of each image': (bixt, (2, 2, 3, 30, 100, 32), range(4)),
    'xca': (xca, (2, 250, 60, 2, True, True), [0]),
    'xca, narrow heads': (xca, (3, 130, 60, 20), [0]),
    'mlp': (mlp, ((2, 50), 48, 192), [0]),
    'mlp, neither scale nor residual': (mlp, ((2, 50), 48, 192, True), [0]),
    'routing': (routing, (2, 15, 9, 2, 16, 4), range(3)),
    'routing, padding': (routing, (2, 15, 9, 3, 8, 2, True), range(3)),
    'routing to one region': (routing, (2, 16, 9, 2, 16, 1), range(3)),
    'inverse': (inverse, ((2, 4, 3), 49, 16, 16, (4, 3)), range(5)),
    'inverse, no bias': (inverse, ((2, 3), 25, 16, 16, None), range(5)),
    'attention': (alone, ((2, 3), 50, 32), range(3)),
    'attention, bias': (alone, ((2, 4, 3), 49, 16, (4, 3)), range(3)),
    'attention, learned bias': (alone, ((2, 4, 3), 49, 16, (3,), True), range(3)),
    'windows': (windows, ((4, 9, 10), 3, 16, 7, 3), [0]),
    'windows, both': (windows, ((4, 9, 10), 3, 16, 7, 3, True), [0, 3, 4]),
    'linear': (linear, ((3, 37), 48, 96), [0]),
    'norm': (norm, (2, 37, 48), [0]),
    'residual': (residual, (2, 37, 48), [0, 1]),
}


def a_mean(x, size):
    return size * torch.randn(x.shape[-1])


SIZES = {  # of tokens
    'normal': lambda x: x,
    'small': lambda x: 1e-2 * x,
    'tiny': lambda x: 1e-4 * x,
    'large': lambda x: 1e3 * x,
    'a mean': lambda x: x + a_mean(x, 3),
    'a large mean': lambda x: x + a_mean(x, 30),
    'all alike': lambda x: a_mean(x, 1).expand_as(x),
    'near the largest of float16': lambda x: 2e4 * x.clamp(-3, 3),
}
BIASES = {alone: 3, windows: 2}  # inputs that are added to scores
PATHS = {  # and the device whose tensors are taken for a processor's
    'plain': ('reference', 'cpu'),
    'auto': ('auto', 'cpu'),
    'auto on a GPU': ('auto', 'none'),
    'portable': ('portable', 'cpu'),
}


def sizes_of(dtype, make):
    """Those that make sense: float16 has no normal numbers below 6e-5; keys are no residuals."""
    left_out = {'tiny' if dtype == torch.float16 else 'small'}
    left_out |= (
        set()
        if make in (xca, mlp, linear, norm)
        else {'a large mean', 'near the largest of float16'}
    )
    return [label for label in SIZES if label not in left_out]


def computed(case, dtype, autocast, label, draw):
    """Results and gradients, by path; of float64, too; and the number of results."""
    make, shape, tokens = case
    torch.manual_seed(draw)
    function, inputs = make(*shape)
    if make in BIASES and len(inputs) > BIASES[make]:  # under autocast fused kernels round it
        bias = inputs[BIASES[make]]
        inputs[BIASES[make]] = (0.3 * bias.detach()).requires_grad_(bias.requires_grad)
    for i in tokens:
        inputs[i] = SIZES[label](inputs[i].detach()).requires_grad_()
    inputs = like(inputs, torch.float32 if autocast else dtype)
    exact = like(inputs, torch.float64)
    with ops.use_ops('reference'):
        results = list_of(function(*exact))
    # exact in any precision, and as of a loss that is scaled up where gradients would be too small
    scale = 1024 if label in ('small', 'tiny') else 1
    weights = [(scale * torch.randn(x.shape)).bfloat16() for x in results]

    def run(path, processor, inputs):
        dispatch._PROCESSOR = processor
        # the fused kernel for processors has no gradient for a bias
        kernel = nullcontext() if processor == 'cpu' else sdpa_kernel(SDPBackend.MATH)
        with ops.use_ops(path), kernel:
            results = list_of(function(*inputs))
        given = [x for x in inputs if x is not None and x.requires_grad]
        grads = [w.to(x.dtype) for w, x in zip(weights, results, strict=True)]
        return [*results, *torch.autograd.grad(results, given, grads)]

    found = {'float64': run('reference', 'cpu', exact)}
    with torch.autocast('cpu', dtype, enabled=autocast):
        for name, path in PATHS.items():
            found[name] = run(*path, inputs)
    return found, len(results)


def list_of(results):
    return [results] if torch.is_tensor(results) else [x for x in results if x is not None]


def like(inputs, dtype):
    return [
        x if x is None else x.detach().to(dtype).requires_grad_(x.requires_grad) for x in inputs
    ]


WAYS = {  # dtype, whether by autocast
    'bf16': (torch.bfloat16, False),
    'fp16': (torch.float16, False),
    'bf16 autocast': (torch.bfloat16, True),
    'fp16 autocast': (torch.float16, True),
}


@pytest.mark.parametrize('way', others_in_zoo(WAYS, ['fp16', 'bf16 autocast']))
@pytest.mark.parametrize('name', CASES)
def test_as_exact_and_as_finite_as_the_plain_order(name, way, monkeypatch):
    dtype, autocast = WAYS[way]
    monkeypatch.setattr(dispatch, '_PROCESSOR', 'cpu')  # it is changed on the way
    unit = torch.finfo(dtype).eps / 2
    for label in sizes_of(dtype, CASES[name][0]):
        errors, sizes = Counter(), Counter()
        draw, wanted = 0, 1
        while draw < wanted:
            found, results = computed(CASES[name], dtype, autocast, label, draw)
            draw += 1
            exact, plain = found.pop('float64'), found['plain']
            wanted = draws_for(plain)
            if not all(x.isfinite().all() for x in plain[:results]):
                plain = plain[:results]  # gradients of what is not finite mean nothing
            for path, tensors in found.items():
                for i, (near, x) in enumerate(zip(plain, tensors, strict=False)):
                    known = near.isfinite()
                    assert (x.isfinite() | ~known).all(), (label, path, i)
                    errors[path, i] += square((x - exact[i])[known])
                    sizes[path, i] += square(exact[i][known])
        for key, error in errors.items():
            limit = max(1.5**2 * errors['plain', key[1]], unit**2 * sizes[key])
            assert error <= limit, (label, *key)


def draws_for(tensors):
    """More where one has few values: by sizes alone, so that no error adds a draw."""
    return min(max(DRAWS, -(-ENOUGH // min(x.numel() for x in tensors))), MOST_DRAWS)


def square(x):
    return float(x.double().square().sum())
