"""Linear maps as 1x1 convolutions, for processors on which those are the faster library's.

On CPUs torch multiplies float32 matrices with MKL, which uses AVX-512 on Intel's processors only,
and convolves with oneDNN, which uses it on all that have it: twice the speed on AMD's. Tokens (N,C)
are an image of one row, (1,C,1,N) in channels-last format, by view alone. Compilers get operators:
left to themselves, they choose other formats for convolutions, and copy.
"""

from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import conv2d, linear

from mmbixt.ops.paths import calls_operators, is_eager
from mmbixt.ops.precision import is_autocast

MIN_MACS = 2**23  # multiply-adds; below, calls cost more than products
MIN_VALUES = 20481  # of the tokens; below, torch leaves convolutions to MKL
# A kernel of one pixel has nothing to dilate, but with one thread torch would leave it to MKL.
DILATION = (1, 2)


def leaves_mkl_behind() -> bool:
    """Whether the processor has AVX-512 and MKL does not use it."""
    has_both = torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()
    if not (has_both and torch.backends.cpu.get_cpu_capability() == 'AVX512'):
        return False
    processors = Path('/proc/cpuinfo')
    if not processors.is_file():
        return False
    with processors.open() as file:
        return 'GenuineIntel' not in file.read(1000)  # of the first processor


IS_CONVOLUTION_FASTER = leaves_mkl_behind()


def pays(x: Tensor, weight: Tensor) -> bool:
    """Whether tokens (...,C) are better convolved with a weight (out,C) than multiplied by it."""
    return (
        calls_operators()
        and x.device.type == 'cpu'
        and x.dtype == weight.dtype == torch.float32
        and x.numel() >= MIN_VALUES
        and x.numel() * len(weight) >= MIN_MACS
        and IS_CONVOLUTION_FASTER
        and torch.backends.mkldnn.enabled
        and not is_autocast(x)
    )


def linear_convolution(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """See :func:`mmbixt.ops.linear`."""
    if not pays(x, weight):
        return linear(x, weight, bias)
    compute = linear_of_rows if is_eager() else linear_operator
    return compute(x.flatten(0, -2), weight, bias).view(*x.shape[:-1], len(weight))


def linear_of_each(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The same with a matrix for each image.

    Args:
        x: tokens (B,N,C).
        weight: (B,out,C).
        bias: (B,out) or None.

    Returns:
        (B,N,out).
    """
    if not pays(x[0], weight[0]):
        weight = weight.transpose(1, 2)
        return x @ weight if bias is None else torch.baddbmm(bias[:, None], x, weight)
    biases = [None] * len(x) if bias is None else bias
    return _stack([linear_convolution(*image) for image in zip(x, weight, biases, strict=True)])


def linear_of_rows(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Tokens (N,C) to (N,out), as a convolution."""
    out = conv2d(_as_map(x), weight[..., None, None], bias, dilation=DILATION)
    return out.permute(0, 2, 3, 1).reshape(len(x), len(weight))


@torch.library.custom_op('mmbixt::linear', mutates_args=(), device_types='cpu')
def linear_operator(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """:func:`linear_of_rows` for compilers."""
    return linear_of_rows(x, weight, bias)


@torch.library.custom_op('mmbixt::linear_backward', mutates_args=(), device_types='cpu')
def linear_gradients_operator(
    grad: Tensor, x: Tensor, weight: Tensor, wanted: list[bool]
) -> list[Tensor]:
    """:func:`_gradients_of_rows` for compilers."""
    return _gradients_of_rows(grad, x, weight, wanted)


@linear_operator.register_fake
def _(x, weight, bias) -> Tensor:
    return x.new_empty(len(x), len(weight))


@linear_gradients_operator.register_fake
def _(grad, x, weight, wanted) -> list[Tensor]:
    shapes = (x.shape, weight.shape, weight.shape[:1])
    return [x.new_empty(shape) for shape, want in zip(shapes, wanted, strict=True) if want]


def _keep(ctx, inputs: tuple[Tensor, Tensor, Tensor | None], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])


def _pass_back(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
    wanted = list(ctx.needs_input_grad)
    found = iter(linear_gradients_operator(grad.contiguous(), *ctx.saved_tensors, wanted))
    return tuple(next(found) if want else None for want in wanted)


linear_operator.register_autograd(_pass_back, setup_context=_keep)


def linear_gradients(grad: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    """What :func:`mmbixt.ops.linear` passes back, for ops that have a backward pass of their own.

    Args:
        grad: (N,out), of the result.
        x: tokens (N,C).
        weight: (out,C).

    Returns:
        The gradients of ``x``, ``weight`` and the bias.
    """
    if not pays(x, weight):
        return grad @ weight, grad.t() @ x, grad.sum(0)
    return tuple(_gradients_of_rows(grad, x, weight, [True, True, True]))


def outer_sums(a: Tensor, b: Tensor) -> Tensor:
    """Tokens (B,N,A) and (B,N,C) to the sums of their outer products, (B,A,C).

    That is the gradient of the weight of a linear map, and computed as such. Without autograd.
    """
    weight = a.new_empty(a.shape[2], b.shape[2])  # only its shape is read
    if not pays(b[0], weight):
        return a.transpose(1, 2) @ b
    compute = _gradients_of_rows if is_eager() else linear_gradients_operator
    of_weight = [False, True, False]
    return _stack([compute(*image, weight, of_weight)[0] for image in zip(a, b, strict=True)])


def _gradients_of_rows(grad: Tensor, x: Tensor, weight: Tensor, wanted: list[bool]) -> list[Tensor]:
    """Gradients of the input, the weight and the bias: those that are wanted."""
    of_x, of_weight, of_bias = torch.ops.aten.convolution_backward(
        _as_map(grad),
        _as_map(x),
        weight[..., None, None],
        [len(weight)],
        stride=(1, 1),
        padding=(0, 0),
        dilation=DILATION,
        transposed=False,
        output_padding=(0, 0),
        groups=1,
        output_mask=wanted,
    )
    if wanted[0]:
        of_x = of_x.permute(0, 2, 3, 1).view(x.shape)
    if wanted[1]:
        of_weight = of_weight.view(weight.shape)
    return [part for part, want in zip((of_x, of_weight, of_bias), wanted, strict=True) if want]


def _as_map(x: Tensor) -> Tensor:
    """(N,C) to (1,C,1,N), with strides by which torch knows the format."""
    return x[None, None].permute(0, 3, 1, 2)


def _stack(images: list[Tensor]) -> Tensor:
    """What ``torch.stack`` gives, without a copy of a single image."""
    return images[0][None] if len(images) == 1 else torch.stack(images)
