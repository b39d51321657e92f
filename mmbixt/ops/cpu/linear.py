"""Products of matrices as 1x1 convolutions, for processors on which those are faster.

On CPUs torch multiplies float32 matrices with MKL, which uses AVX-512 on Intel's processors only,
and convolves with oneDNN, which uses AVX-512 on all processors that have it: on some of AMD's this
is twice as fast, on others not faster, so both are measured. Tokens (N,C) are viewed as an image of
one row, (1,C,1,N) in channels-last format. Compilers get operators, because they would choose other
formats for convolutions, and copy.

Two products are all that a linear layer and its backward pass need: ``multiply`` (the result, the
gradient of the input) and ``outer_sum`` (the gradient of the weight, a Gram matrix).
"""

from math import prod
from time import thread_time

import torch
from torch import Tensor
from torch.nn.functional import conv2d
from torch.nn.grad import conv2d_weight

from mmbixt.ops import dispatch
from mmbixt.ops.cpu.operator import Operator, Results

# No effect on a kernel of one pixel, but without dilation torch uses MKL if there is one thread.
DILATION = (1, 2)
MIN_GAIN = 1.05  # oneDNN must be this many times as fast as MKL; whole networks gain a bit more


def multiply(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, out: Tensor | None = None
) -> Tensor:
    """Tokens (N,C), a weight (out,C) and a bias (out,) to (N,out), in ``out`` if it is given."""
    if not dispatch.convolution_refusal(x, weight.dtype, weight.shape[0]):
        result = _convolve(x, weight, bias)
        return result if out is None else out.copy_(result)
    result = torch.mm(x, weight.t(), out=out)
    # `addmm` would copy the bias to all rows, and MKL read and write them
    return result if bias is None else result.add_(bias)


def multiply_add(x: Tensor, weight: Tensor, out: Tensor) -> None:
    """Add the product of tokens (N,C) and a weight (out,C) to ``out`` (N,out)."""
    if dispatch.convolution_refusal(x, weight.dtype, weight.shape[0]):
        out.addmm_(x, weight.t())
    else:
        out.add_(_convolve(x, weight))


def outer_sum(a: Tensor, b: Tensor) -> Tensor:
    """Tokens (N,A) and (N,C) to the sum of their outer products, (A,C)."""
    if dispatch.convolution_refusal(b, a.dtype, a.shape[1]):
        return a.t() @ b
    return _gradient_of_weight(a, b)


def linear_cpu(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    tokens = x.reshape(-1, x.shape[-1])
    if dispatch.is_eager():
        out = _convolve(tokens, weight, bias)
    else:
        (out,) = linear(tokens, weight, bias)
    return out.view(*x.shape[:-1], weight.shape[0])


def linear_per_image_cpu(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    biases = [None] * len(x) if bias is None else bias
    return _stack([linear_cpu(*image) for image in zip(x, weight, biases, strict=True)])


def outer_sum_per_image_cpu(a: Tensor, b: Tensor) -> Tensor:
    if dispatch.is_eager():
        return _stack([_gradient_of_weight(*image) for image in zip(a, b, strict=True)])
    return _stack([outer(*image)[0] for image in zip(a, b, strict=True)])


def _convolve(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    out = conv2d(_as_image(x), weight[..., None, None], bias, dilation=DILATION)
    # an expanded x does not look channels-last, and then the result is not; compilers expect it
    return out.permute(0, 2, 3, 1).reshape(x.shape[0], weight.shape[0]).contiguous()


def _gradient_of_weight(grad: Tensor, x: Tensor) -> Tensor:
    """(N,out) and (N,C) to (out,C)."""
    shape = (grad.shape[1], x.shape[1], 1, 1)
    return conv2d_weight(_as_image(x), shape, _as_image(grad), dilation=DILATION).view(shape[:2])


def _as_image(x: Tensor) -> Tensor:
    """(N,C) to (1,C,1,N), with strides by which torch knows the format."""
    return x[None, None].permute(0, 3, 1, 2)


def _stack(images: list[Tensor]) -> Tensor:
    """What ``torch.stack`` gives, without a copy of a single image."""
    return images[0][None] if len(images) == 1 else torch.stack(images)


def _forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Results:
    return [_convolve(x, weight, bias)], []


def _backward(grads, kept, x, weight, bias) -> list[Tensor]:
    grad = grads[0].contiguous()
    grad_weights = [_gradient_of_weight(grad, x), *([] if bias is None else [grad.sum(0)])]
    return [_convolve(grad, weight.t()), *grad_weights]


# Below are the operators, for compilers.
linear = Operator(
    'linear',
    _forward,
    _backward,
    fake=lambda x, weight, bias: ([x.new_empty(x.shape[0], weight.shape[0])], []),
    differentiable=('x', 'weight', 'bias'),
    flops=lambda x, weight, bias: 2 * x[0] * prod(weight),
)


def _outer_forward(a: Tensor, b: Tensor) -> Results:
    return [_gradient_of_weight(a, b)], []


def _outer_backward(grads, kept, a, b) -> list[Tensor]:
    return [_convolve(b, grads[0]), _convolve(a, grads[0].t())]


outer = Operator(
    'outer',
    _outer_forward,
    _outer_backward,
    fake=lambda a, b: ([a.new_empty(a.shape[1], b.shape[1])], []),
    differentiable=('a', 'b'),
    flops=lambda a, b: 2 * prod(a) * b[1],
)


@torch.no_grad()
def measured_gain(tokens: int = 512, channels: int = 192, rounds: int = 5) -> float:
    """How many times as fast as MKL oneDNN is at the products of a linear layer, in 50 ms.

    The shortest times of one thread are compared, because other processes affect them least.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    options = dict(device='cpu', dtype=torch.float32)
    x, hidden = (torch.ones(tokens, n * channels, **options) for n in (1, 4))
    weight = torch.ones(4 * channels, channels, **options)

    def mkl() -> None:
        torch.mm(x, weight.t())
        torch.mm(hidden.t(), x)

    def onednn() -> None:
        _convolve(x, weight)
        _gradient_of_weight(hidden, x)

    seconds: dict = {mkl: [], onednn: []}
    for _ in range(rounds):
        for multiply_both, found in seconds.items():
            start = thread_time()
            multiply_both()
            found.append(thread_time() - start)
    torch.set_num_threads(threads)
    return min(seconds[mkl]) / min(seconds[onednn])


if (
    torch.backends.mkl.is_available()
    and torch.backends.mkldnn.is_available()
    and torch.backends.cpu.get_cpu_capability() == 'AVX512'  # both use AVX2 otherwise
):
    dispatch.ONEDNN_IS_FASTER = measured_gain() > MIN_GAIN
