"""One network in a process of its own, which measures what it is told to.

``python -m mmbixt.benchmarking.worker`` reads a line of JSON that says what to build, answers with
one, and then takes one command a line: 'memory', 'forward', 'both', 'peak', 'flops'.
"""

import copy
import ctypes
import gc
import json
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from mmbixt.benchmarking.rows import build
from mmbixt.ops import use_ops
from mmbixt.ops.linear.convolution import linear_convolution

DTYPES = {'fp32': torch.float32, 'bf16': torch.bfloat16}
SIDE = 2048  # of the matrices whose product is the machine's peak


class Network:
    """A network on an image, ready to be measured.

    Args:
        name: see :mod:`mmbixt.benchmarking.rows`.
        size: height and width of the image.
        batch: images.
        device: 'cpu' or 'cuda'.
        dtype: a key of :data:`DTYPES`.
        threads: of the CPU.
        compiled: whether to run it through ``torch.compile``.
    """

    def __init__(
        self,
        name: str,
        size: int,
        batch: int,
        device: str,
        dtype: str,
        threads: int,
        compiled: bool,
    ) -> None:
        torch.set_num_threads(threads)
        self.device = torch.device(device)
        model, way = build(name, size)
        self.compiled = compiled or way == 'compiled'
        self.path = 'auto' if way == 'compiled' else way
        self.parameters = sum(p.numel() for p in model.parameters())
        self.model = model.to(self.device, DTYPES[dtype])
        self.image = torch.randn(batch, 3, size, size).to(self.device, DTYPES[dtype])
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
        maps = self.call(self.image)
        total: Tensor = sum(x.float().sum() for x in maps)
        total.backward()

    def memory(self) -> int:
        """Bytes that a forward and backward pass takes on top of the model, at its peak.

        The first one of the process: nothing is left over from an earlier one, but for what a
        compiler has done.
        """
        self.model.train()
        if self.compiled:
            self._forward_and_backward()
            self.model.zero_grad()
            _give_back_memory()
        if self.device.type == 'cuda':
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            self._forward_and_backward()
            return torch.cuda.max_memory_allocated() - before
        before = _resident('VmRSS')
        with open('/proc/self/clear_refs', 'w') as file:  # sets the peak back to what is resident
            file.write('5')
        self._forward_and_backward()
        return _resident('VmHWM') - before

    def flops(self) -> int:
        """Multiply-adds of a forward pass as torch counts them, on the plain paths of the ops.

        Shapes are enough for that. Of the fused attentions torch counts only those of GPUs.
        """
        counter = FlopCounterMode(display=False)
        model = copy.deepcopy(self.model).to('meta')
        model.eval()  # not all of mmseg's return themselves
        plain = sdpa_kernel(SDPBackend.MATH)
        with counter, plain, torch.no_grad(), use_ops('reference'):
            model(self.image.to('meta'))
        return counter.get_total_flops() // 2

    def peak(self) -> float:
        """Multiply-adds a second of a large matrix product, by the faster of torch's libraries."""
        a = torch.randn(SIDE, SIDE).to(self.image)
        products = (lambda: a @ a, lambda: linear_convolution(a, a))
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

    def answer(self, command: str) -> Any:
        with use_ops(self.path) if self.path != 'auto' else nullcontext():
            return getattr(self, command)()


def _give_back_memory() -> None:
    """Of what is freed, the C library keeps some, which would hide what is taken next."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def _resident(field: str) -> int:
    """Bytes of memory that the process has ('VmRSS'), or had at most ('VmHWM')."""
    with open('/proc/self/status') as file:
        line = next(line for line in file if line.startswith(field))
    return int(line.split()[1]) * 1024


def main() -> None:
    answers = sys.stdout
    sys.stdout = sys.stderr  # whatever libraries print
    try:
        network = Network(**json.loads(sys.stdin.readline()))
        print(json.dumps(dict(parameters=network.parameters)), file=answers, flush=True)
        for line in sys.stdin:
            print(json.dumps(network.answer(line.strip())), file=answers, flush=True)
    except Exception as error:
        print(json.dumps(dict(error=f'{type(error).__name__}: {error}')), file=answers, flush=True)
        raise


if __name__ == '__main__':
    main()
