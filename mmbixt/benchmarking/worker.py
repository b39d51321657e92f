"""One network in its own process, measured on request."""

import copy
import ctypes
import gc
import os
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from multiprocessing.connection import Connection
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
    """The setting of all measurements.

    Attributes:
        batch: images at a time.
        device: 'cpu' or 'cuda'.
        dtype: a key of :data:`DTYPES`.
        threads: number of CPU threads.
    """

    batch: int = 1
    device: str = 'cpu'
    dtype: str = 'fp32'
    threads: int = 1


class Network:
    """A network and an image, ready for measurements.

    Args:
        name: see :mod:`mmbixt.benchmarking.networks`.
        size: height and width of the image.
        setting: the setting of the measurements.
    """

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
        before = _resident('VmRSS')
        with open('/proc/self/clear_refs', 'w') as file:  # resets the peak to the current value
            file.write('5')
        self._forward_and_backward()
        return _resident('VmHWM') - before

    def macs(self) -> int:
        """Multiply-adds of a forward pass, counted by torch on the reference paths of the ops.

        On the meta device. torch counts fused attention only on GPUs.
        """
        counter = FlopCounter()
        model = copy.deepcopy(self.model).to('meta')
        model.eval()  # a separate statement: eval() of some mmseg models returns None
        plain = sdpa_kernel(SDPBackend.MATH)
        new = torch.device('meta')  # of tensors for which the code of others names no device
        with new, counter, plain, torch.no_grad(), use_ops('reference'):
            model(self.image.to('meta'))
        return counter.get_total_flops() // 2

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


def _resident(field: str) -> int:
    """Resident memory of the process in bytes: current ('VmRSS') or peak ('VmHWM')."""
    with open('/proc/self/status') as file:
        line = next(line for line in file if line.startswith(field))
    return int(line.split()[1]) * 1024


def serve(connection: Connection, output: str, name: str, size: int, setting: Setting) -> None:
    """Build a network, and send measurements until the connection is closed.

    Args:
        connection: receives names of methods or attributes of :class:`Network`, sends values.
        output: a file for stdout and stderr.
        name: name of the network.
        size: height and width of the image.
        setting: the setting of the measurements.
    """
    with open(output, 'w') as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    warnings.simplefilter('ignore')
    try:
        what = connection.recv()
        network = Network(name, size, setting)
        while True:
            connection.send(network.get(what))
            what = connection.recv()
    except EOFError:  # closed by the parent
        return
    except Exception as error:
        connection.send(RuntimeError(f'{type(error).__name__}: {error}'))
