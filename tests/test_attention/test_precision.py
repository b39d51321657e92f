"""In half precision on a CPU what runs has at most 1.5 times the error of the definition, or one
below the unit roundoff; and it is finite where the definition is."""

import copy
from collections import Counter

import pytest
import torch
from cases import bisa, bixt, plain, routed, windowed, xca
from helpers import formulation, others_in_zoo
from parity import Call, tensors

from mmbixt.attention import by_definition

DRAWS = 3  # of random numbers, whose errors are added up
ENOUGH = 500  # values of a tensor in all its draws, so that one rounding does not decide
MOST_DRAWS = 12

# Which inputs are tokens (the others are weights). Odd numbers of keys: the weights of keys that
# are alike would else be exact.
CASES = {
    'latents shared by the batch': (bixt, (2, 1, 3, 30, 100, 32), range(4)),
    'latents of each image': (bixt, (2, 2, 3, 30, 100, 32), range(4)),
    'xca': (xca, (2, 250, 60, 2), [0]),
    'xca, narrow heads': (xca, (3, 130, 60, 20), [0]),
    'routing': (routed, (2, 15, 9, 2, 16, 4), range(3)),
    'routing, padding': (routed, (2, 15, 9, 3, 8, 2, True), range(3)),
    'routing to one region': (routed, (2, 16, 9, 2, 16, 1), range(3)),
    'inverse': (bisa, ((2, 4), 49, 3, 16, (4, 3)), [0]),
    'inverse, no bias': (bisa, ((2,), 25, 3, 16), [0]),
    'attention': (plain, (2, 3, 50, 50, 32), range(3)),
    'attention, masked': (plain, (2, 3, 49, 49, 16, True), range(3)),
    'windows': (windowed, ((9, 10), 3), [0]),
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
WAYS = {  # dtype, whether by autocast
    'bf16': (torch.bfloat16, False),
    'fp16': (torch.float16, False),
    'bf16 autocast': (torch.bfloat16, True),
    'fp16 autocast': (torch.float16, True),
}


def sizes_of(dtype, make):
    """Those that make sense: float16 has no normal numbers below 6e-5; keys are no residuals."""
    left_out = {'tiny' if dtype == torch.float16 else 'small'}
    left_out |= set() if make is xca else {'a large mean', 'near the largest of float16'}
    return [label for label in SIZES if label not in left_out]


def computed(case, dtype, autocast, label, draw):
    """Results and gradients, by formulation; in float64, too; and the number of results."""
    make, shape, tokens = case
    torch.manual_seed(draw)
    function, inputs = make(*shape)
    for i in tokens:
        inputs[i] = SIZES[label](inputs[i].detach()).requires_grad_()
    call = Call(function, inputs).to(torch.float32 if autocast else dtype)
    exact = copy.deepcopy(call).double()
    with by_definition():
        results = tensors(exact.function(*exact.inputs))
    # exact in any precision, and as of a loss that is scaled up where gradients would be too small
    scale = 1024 if label in ('small', 'tiny') else 1
    weights = [(scale * torch.randn(x.shape)).bfloat16() for x in results]

    def run(name, call):
        with formulation(name):
            results = tensors(call.function(*call.inputs))
        given = [x for x in call.parameters() if x.requires_grad]
        grads = [w.to(x.dtype) for w, x in zip(weights, results, strict=True)]
        return [*results, *torch.autograd.grad(results, given, grads)]

    found = {'float64': run('definition', exact)}
    with torch.autocast('cpu', dtype, enabled=autocast):
        for name in ('definition', 'fast'):
            found[name] = run(name, call)
    return found, len(results)


@pytest.mark.parametrize('way', others_in_zoo(WAYS, ['fp16', 'bf16 autocast']))
@pytest.mark.parametrize('name', CASES)
def test_as_exact_and_as_finite_as_the_definition(name, way):
    dtype, autocast = WAYS[way]
    unit = torch.finfo(dtype).eps / 2
    for label in sizes_of(dtype, CASES[name][0]):
        errors, sizes = Counter(), Counter()
        draw, wanted = 0, 1
        while draw < wanted:
            found, results = computed(CASES[name], dtype, autocast, label, draw)
            draw += 1
            exact, plain = found.pop('float64'), found['definition']
            wanted = draws_for(plain)
            if not all(x.isfinite().all() for x in plain[:results]):
                plain = plain[:results]  # gradients of what is not finite mean nothing
            for path, values in found.items():
                for i, (near, x) in enumerate(zip(plain, values, strict=False)):
                    known = near.isfinite()
                    assert (x.isfinite() | ~known).all(), (label, path, i)
                    errors[path, i] += square((x - exact[i])[known])
                    sizes[path, i] += square(exact[i][known])
        for key, error in errors.items():
            limit = max(1.5**2 * errors['definition', key[1]], unit**2 * sizes[key])
            assert error <= limit, (label, *key, error / limit)


def draws_for(values):
    """More where one has few values: by sizes alone, so that no error adds a draw."""
    return min(max(DRAWS, -(-ENOUGH // min(x.numel() for x in values))), MOST_DRAWS)


def square(x):
    return float(x.double().square().sum())
