"""Products of matrices as 1x1 convolutions, for processors on which those are faster.

On CPUs torch multiplies float32 matrices with MKL, which uses AVX-512 on Intel's processors only,
and convolves with oneDNN, which uses it on all that have it: up to twice the speed on AMD's. Tokens
(N,C) are an image of one row, (1,C,1,N) in channels-last format, by view alone. Compilers get
operators: left to themselves, they choose other formats for convolutions, and copy.

Two products are all that a linear layer and its backward pass need: ``multiply`` (the result, the
gradient of the input) and ``outer_sum`` (the gradient of the weight, a Gram matrix).
"""

import torch
from torch import Tensor
from torch.nn.functional import conv2d

from mmbixt.ops import dispatch
from mmbixt.ops.cpu.operator import differentiate, like, operator

# A kernel of one pixel has nothing to dilate, but with one thread torch would leave it to MKL.
DILATION = (1, 2)


def multiply(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, out: Tensor | None = None
) -> Tensor:
    """Tokens (N,C), a weight (out,C) and a bias (out,) to (N,out), in ``out`` if it is given."""
    if dispatch.RULES['linear'](x, weight)[0] == 'cpu':
        result = _convolve(x, weight, bias)
        return result if out is None else out.copy_(result)
    if bias is None:
        return torch.mm(x, weight.t(), out=out)
    return torch.addmm(bias, x, weight.t(), out=out)


def outer_sum(a: Tensor, b: Tensor) -> Tensor:
    """Tokens (N,A) and (N,C) to the sum of their outer products, (A,C)."""
    if dispatch.RULES['linear'](b, a.new_empty(a.shape[1], b.shape[1]))[0] != 'cpu':
        return a.t() @ b
    return _gradient_of_weight(a, b)


def linear_cpu(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """See :func:`mmbixt.ops.linear`."""
    tokens = x.reshape(-1, x.shape[-1])
    compute = _convolve if dispatch.is_eager() else linear
    return compute(tokens, weight, bias).view(*x.shape[:-1], weight.shape[0])


def linear_per_image_cpu(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """See :func:`mmbixt.ops.linear_per_image`."""
    biases = [None] * len(x) if bias is None else bias
    return _stack([linear_cpu(*image) for image in zip(x, weight, biases, strict=True)])


def outer_sum_per_image_cpu(a: Tensor, b: Tensor) -> Tensor:
    """See :func:`mmbixt.ops.outer_sum_per_image`."""
    compute = _gradient_of_weight if dispatch.is_eager() else outer
    return _stack([compute(*image) for image in zip(a, b, strict=True)])


def _fake_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[0])


@operator(_fake_linear)
def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """:func:`multiply` for compilers."""
    return _convolve(x, weight, bias)


@operator(lambda a, b: a.new_empty(a.shape[1], b.shape[1]))
def outer(a: Tensor, b: Tensor) -> Tensor:
    """:func:`outer_sum` for compilers."""
    return _gradient_of_weight(a, b)


@operator(lambda grad, x, weight, needed: like(x, weight, weight[:, 0]))
def linear_backward(grad: Tensor, x: Tensor, weight: Tensor, needed: list[bool]) -> list[Tensor]:
    """The gradients of the tokens, the weight and the bias; empty where none is needed."""
    out = like(x, weight, weight[:, 0])
    if needed[0]:
        out[0] = _convolve(grad, weight.t())
    if needed[1]:
        out[1] = _gradient_of_weight(grad, x)
    if needed[2]:
        out[2] = grad.sum(0)
    return out


def _save(inputs: tuple, output: Tensor) -> tuple[tuple[Tensor, ...], None]:
    return inputs[:2], None


def _gradients(grad: Tensor, saved: tuple[Tensor, ...], _, needed: list[bool]) -> tuple:
    grads = linear_backward(grad.contiguous(), *saved, needed)
    return tuple(g if need else None for g, need in zip(grads, needed, strict=True))


differentiate(linear, _save, _gradients)


def _convolve(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    out = conv2d(_as_image(x), weight[..., None, None], bias, dilation=DILATION)
    return out.permute(0, 2, 3, 1).reshape(x.shape[0], weight.shape[0])


def _gradient_of_weight(grad: Tensor, x: Tensor) -> Tensor:
    """(N,out) and (N,C) to (out,C)."""
    weight = x.new_empty(grad.shape[1], x.shape[1], 1, 1)  # only its shape is read
    _, grad_weight, _ = torch.ops.aten.convolution_backward(
        _as_image(grad),
        _as_image(x),
        weight,
        None,
        stride=(1, 1),
        padding=(0, 0),
        dilation=DILATION,
        transposed=False,
        output_padding=(0, 0),
        groups=1,
        output_mask=(False, True, False),
    )
    return grad_weight.view(grad.shape[1], x.shape[1])


def _as_image(x: Tensor) -> Tensor:
    """(N,C) to (1,C,1,N), with strides by which torch knows the format."""
    return x[None, None].permute(0, 3, 1, 2)


def _stack(images: list[Tensor]) -> Tensor:
    """What ``torch.stack`` gives, without a copy of a single image."""
    return images[0][None] if len(images) == 1 else torch.stack(images)
