"""One network in its own process, measured on request."""

import copy
import ctypes
import gc
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from mmbixt.benchmarking.networks import build
from mmbixt.ops import linear, use_ops
from mmbixt.ops.flop_counter import FlopCounter

DTYPES = {'fp32': torch.float32, 'bf16': torch.bfloat16}
SIDE = 2048  # of the matrices whose product measures the peak of the machine


@dataclass(frozen=True)
class Setting:
    """The setting of all measurements."""

    batch: int = 1  # images at a time
    device: str = 'cpu'  # or 'cuda'
    dtype: str = 'fp32'  # a key of DTYPES
    threads: int = 1  # of the processor


class Network:
    """A network, by its name, and images of some height and width, ready for measurements."""

    def __init__(self, name: str, size: int, setting: Setting) -> None:
        torch.set_num_threads(setting.threads)
        self.device = torch.device(setting.device)
        model, mode = build(name, size)
        self.compiled = mode == 'compiled'
        self.path = 'auto' if self.compiled else mode
        self.parameters = sum(p.numel() for p in model.parameters())
        dtype = DTYPES[setting.dtype]
        self.model = model.to(self.device, dtype)
        self.image = torch.randn(setting.batch, 3, size, size).to(self.device, dtype)
        self.call: nn.Module = torch.compile(self.model) if self.compiled else self.model

    def forward(self) -> float:
        """Seconds of a forward pass without gradients, in eval mode."""
        self.model.eval()
        with torch.no_grad():
            return self._timed(lambda: self.call(self.image))

    def both(self) -> float:
        """Seconds of a forward and backward pass in training mode."""
        self.model.train()
        self.model.zero_grad(set_to_none=False)
        return self._timed(self._forward_and_backward)

    def _forward_and_backward(self) -> None:
        feature_maps = self.call(self.image)
        total: Tensor = sum(x.float().sum() for x in feature_maps)
        total.backward()

    def memory(self) -> int:
        """Peak bytes of a forward and backward pass, without the model.

        It must be the first measurement: earlier passes leave allocated memory.
        """
        self.model.train()
        if self.compiled:
            self._forward_and_backward()
            self.model.zero_grad()
            _return_freed_memory()
        if self.device.type == 'cuda':
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            self._forward_and_backward()
            return torch.cuda.max_memory_allocated() - before
        before = resident('VmRSS')
        with open('/proc/self/clear_refs', 'w') as file:  # resets the peak to the current value
            file.write('5')
        self._forward_and_backward()
        return resident('VmHWM') - before

    def macs(self) -> int:
        """Multiply-adds of a forward pass, counted on the meta device."""
        model = copy.deepcopy(self.model).to('meta')
        model.eval()  # a separate statement: eval() of some mmseg models returns None
        image = self.image.to('meta')
        with torch.device('meta'):  # for tensors for which the code of others names no device
            return count_macs(lambda: model(image))

    def peak(self) -> float:
        """Multiply-adds per second of a large matrix product, by the faster library of torch."""
        a = torch.randn(SIDE, SIDE).to(self.image)
        with use_ops('auto'):
            products = (lambda: a @ a, lambda: linear(a, a))
            return SIDE**3 / min(self._timed(product) for product in products for _ in range(5))

    def _timed(self, run: Callable[[], Any]) -> float:
        self._wait()
        start = time.perf_counter()
        run()
        self._wait()
        return time.perf_counter() - start

    def _wait(self) -> None:
        if self.device.type == 'cuda':
            torch.cuda.synchronize()

    def get(self, what: str) -> Any:
        with use_ops(self.path) if self.path != 'auto' else nullcontext():
            found = getattr(self, what)
            return found() if callable(found) else found


def _return_freed_memory() -> None:
    """Return freed memory, which the C library keeps, to the system, to measure later use."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def resident(field: str) -> int:
    """Resident memory of the process in bytes: current ('VmRSS') or peak ('VmHWM')."""
    with open('/proc/self/status') as file:
        line = next(line for line in file if line.startswith(field))
    return int(line.split()[1]) * 1024


def count_macs(forward: Callable[[], Any]) -> int:
    """Multiply-adds of a call on the reference paths: torch does not count fused attention."""
    counter = FlopCounter()
    with counter, torch.no_grad(), use_ops('reference'), sdpa_kernel(SDPBackend.MATH):
        forward()
    return counter.get_total_flops() // 2


@cache
def network(name: str, size: int, setting: Setting) -> Network:
    warnings.simplefilter('ignore')
    return Network(name, size, setting)


def get(what: str, *about: Any) -> Any:
    """The value of an attribute, or the result of a method, of a :class:`Network`.

    It is built from the arguments ``about`` at the first call in a process.
    """
    try:
        return network(*about).get(what)
    except Exception as error:  # other processes may not know its class
        raise RuntimeError(f'{type(error).__name__}: {error}') from None
