"""Time and memory of networks: forward, forward and backward, at one or more image sizes.

Each network runs in its own process, and the processes take turns: A B A B. With --against, the
last columns are ratios: time of the baseline / time of the network, memory of the network / memory
of the baseline. The memory is the peak of a forward and backward pass, or with --inference-memory
of a forward pass without gradients, without the weights.
"""

import argparse
import ctypes
import gc
import json
import os
import runpy
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from contextlib import ExitStack, nullcontext
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._pytree import tree_leaves
from tqdm import tqdm

from mmbixt import backbones
from mmbixt.attention import by_definition
from mmbixt.checkpoints.sources import PUBLISHED
from mmbixt.errors import near_matches
from mmbixt.evaluation.tables import aligned

ROWS = """\
A ROW is one of
  xcit_tiny_12_p16             a published model (docs/configs.md lists them)
  timm/xcit_tiny_12_p16_224    any model of timm that returns feature maps
  configs/..., mmseg::...      the backbone of a config: a file or one of an installed package
  my_code.py:build             the result of a function in another file (which is executed)
and may end in
  @compiled                    with torch.compile
  @definition                  attentions by their definition, without the faster code
  @graph                       on a GPU: each pass in a CUDA graph, so that it waits for no CPU
  @onnxruntime, @openvino      exported to ONNX and run there: forward only, float32, on the CPU"""


# --- Networks by name -----------------------------------------------------------------------------


def split_row(row: str) -> tuple[str, list[str]]:
    """The name of a network, and its modes: the words after an ``@``."""
    name, *modes = row.split('@')
    known = ('compiled', 'definition', 'graph', *EXPORTED)
    if unknown := set(modes) - set(known):
        raise ValueError(f'{unknown.pop()!r} is not a mode; the modes are {", ".join(known)}')
    return name, modes


def build(name: str, size: int) -> nn.Module:
    """A network by its name."""
    if name.startswith('timm/'):
        import timm

        name = name.removeprefix('timm/')
        options = dict(img_size=size) if name.startswith(('cait', 'deit', 'swin', 'vit_')) else {}
        return timm.create_model(name, features_only=True, **options)
    if '.py:' in name:
        path, _, function = name.rpartition(':')
        return runpy.run_path(path)[function]()
    if name.endswith('.py'):
        from mmengine.registry import MODELS, init_default_scope  # here, as each process imports it

        from mmbixt.config import read_config

        cfg = read_config(name)
        init_default_scope(cfg.default_scope)
        return MODELS.build(cfg.model.backbone)
    published = {model.name: model for model in PUBLISHED}
    if name not in published:
        raise ValueError(f'There is no network {name}.{near_matches(name, published)}')
    model = published[name]
    options = {**model.options, **(dict(model.at_512) if size >= 512 else {})}
    return getattr(backbones, model.family)(**options)


# --- Measurements of a network, in a process of its own -------------------------------------------


def in_onnxruntime(file: str, images: np.ndarray, threads: int) -> Callable[[], Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(file, options, providers=['CPUExecutionProvider'])
    inputs = {session.get_inputs()[0].name: images}
    return lambda: session.run(None, inputs)


def in_openvino(file: str, images: np.ndarray, threads: int) -> Callable[[], Any]:
    import openvino

    # without the hint it computes in bfloat16 on some CPUs
    options = dict(INFERENCE_NUM_THREADS=threads, INFERENCE_PRECISION_HINT='f32')
    program = openvino.compile_model(openvino.convert_model(file), 'CPU', options)
    return lambda: program([images], share_outputs=True)


EXPORTED = dict(onnxruntime=in_onnxruntime, openvino=in_openvino)


class Network:
    """The network of a row, and images; ``args`` are those of the command."""

    def __init__(self, row: str, size: int, args: argparse.Namespace) -> None:
        warnings.simplefilter('ignore')
        torch.set_num_threads(args.threads)
        torch.manual_seed(0)
        name, modes = split_row(row)
        self.is_gpu, self.model = args.device == 'cuda', build(name, size).to(args.device)
        for module in self.model.modules():  # mmbixt's, timm's and mmcv's skip a random amount
            if type(module).__name__ == 'DropPath':
                module.drop_prob = 0.0
        image = torch.randn(args.batch, 3, size, size).to(args.device)
        self.is_compiled, self.is_graph = 'compiled' in modes, 'graph' in modes
        self.is_inference = args.inference_memory
        self.graphs: dict[str, torch.cuda.CUDAGraph] = {}
        call = torch.compile(self.model) if self.is_compiled else self.model
        amp = dict(dtype=torch.bfloat16, enabled=args.amp, cache_enabled=not self.is_graph)

        def run() -> Any:
            with torch.autocast(args.device, **amp):
                return call(image)

        self.run: Callable[[], Any] = run
        self.program = next((mode for mode in modes if mode in EXPORTED), None)
        if self.program:
            self.run = self._exported(image, args.threads)

    def _exported(self, image: torch.Tensor, threads: int) -> Callable[[], Any]:
        self.model.eval()
        with TemporaryDirectory() as folder, torch.no_grad():
            file = f'{folder}/network.onnx'
            torch.onnx.export(self.model, (image,), file, dynamo=True, verbose=False)
            return EXPORTED[self.program](file, image.numpy(), threads)

    def turn(self) -> dict[str, float]:
        """Seconds of a forward pass in eval mode, and of both passes in training mode."""
        self.model.eval()
        with torch.no_grad():
            forward = self._seconds(self._in_graph('forward', self.run))
        if self.program:
            return dict(forward=forward)
        self.model.train()
        return dict(forward=forward, both=self._seconds(self._in_graph('both', self._train)))

    def _in_graph(self, name: str, run: Callable[[], Any]) -> Callable[[], Any]:
        """With ``@graph``: what replays a pass; captured at the first call."""
        if not self.is_graph:
            return run
        if name not in self.graphs:
            aside = torch.cuda.Stream()
            with torch.cuda.stream(aside):
                for _ in range(3):
                    run()
            torch.cuda.synchronize()
            self.graphs[name] = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graphs[name]):
                run()
        return self.graphs[name].replay

    def memory(self) -> dict[str, int]:
        """Peak bytes beyond what the process had; to be measured first of all."""
        if self.program:
            return {}
        self.model.train(not self.is_inference)
        run = self._infer if self.is_inference else self._train
        if self.is_compiled or self.is_gpu:  # compilers and libraries of GPUs allocate at first
            run()
            self.model.zero_grad()
            gc.collect()
            ctypes.CDLL(None).malloc_trim(0)  # the C library keeps what is freed
        if self.is_gpu:
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            run()
            return dict(memory=torch.cuda.max_memory_allocated() - before)
        limit_of_heap(2**17)
        before = resident('VmRSS')
        Path('/proc/self/clear_refs').write_text('5')  # resets the peak to the current value
        run()
        peak = resident('VmHWM')
        limit_of_heap(2**25)  # the largest that glibc chooses by itself
        return dict(memory=peak - before)

    def _infer(self) -> None:
        with torch.no_grad():
            self.run()

    def _train(self) -> None:
        self.model.zero_grad()
        sum(x.float().sum() for x in tree_leaves(self.run())).backward()

    def _seconds(self, run: Callable[[], Any]) -> float:
        """Of one pass; on a GPU the mean of several, since they may overlap."""
        wait, passes = (torch.cuda.synchronize, 10) if self.is_gpu else (lambda: None, 1)
        wait()
        start = time.perf_counter()
        for _ in range(passes):
            run()
        wait()
        return (time.perf_counter() - start) / passes


def limit_of_heap(size: int) -> None:
    """Let glibc return larger blocks to the system when they are freed.

    It would keep up to a third of the peak in its heap, depending on the order of the blocks.
    """
    m_mmap_threshold = -3
    ctypes.CDLL(None).mallopt(m_mmap_threshold, size)


def resident(field: str) -> int:
    """Resident memory of the process in bytes: current ('VmRSS') or peak ('VmHWM')."""
    lines = Path('/proc/self/status').read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


NETWORKS: list[Network] = []  # one in a process


def call(method: str, row: str, *others: Any) -> dict:
    """The result of a method of a :class:`Network`, which is built at the first call."""
    with by_definition() if 'definition' in split_row(row)[1] else nullcontext():
        if not NETWORKS:
            NETWORKS.append(Network(row, *others))
        return getattr(NETWORKS[0], method)()


# --- All networks in turns ------------------------------------------------------------------------


def measure(size: int, args: argparse.Namespace) -> list[dict]:
    """Measurements of each row at a size: lists of seconds (forward, both) and bytes (memory)."""
    measured = [dict(row=row, size=size, forward=[], both=[], memory=[]) for row in args.rows]
    with ExitStack() as stack:
        pools = [
            stack.enter_context(ProcessPoolExecutor(1, get_context('spawn'))) for _ in measured
        ]
        wait([pool.submit(os.getpid) for pool in pools])  # imports at the same time
        for method in tqdm(['memory', *['turn'] * (1 + args.rounds)], desc=f'{size} pixels'):
            for one, pool in zip(measured, pools, strict=True):
                try:
                    values = pool.submit(call, method, one['row'], size, args).result()
                except Exception as error:
                    raise RuntimeError(f'{one["row"]} failed') from error
                for key, value in values.items():
                    one[key].append(value)
    for one in measured:  # the first turn was for warm-up
        del one['forward'][0], one['both'][:1]
    return measured


# --- Tables ---------------------------------------------------------------------------------------


def time_cells(seconds: Sequence[float]) -> list[str]:
    """The median, and half of the interquartile range as a share of it."""
    if not seconds:
        return ['–', '']
    ordered, middle = sorted(seconds), median(seconds)
    low, high = ordered[len(ordered) // 4], ordered[(3 * len(ordered)) // 4]
    return [f'{middle * 1e3:.1f} ms', f'± {(high - low) / 2 / middle:.0%}']


def ratio(above: Sequence[float], below: Sequence[float], unit: str) -> str:
    """The median over the rounds."""
    ratios = [a / b for a, b in zip(above, below, strict=False)]
    return f'{median(ratios):.2f}{unit}' if ratios else '–'


def make_table(measured: Sequence[dict], against: str | None, batch: int) -> str:
    """A table of all rows and sizes."""
    baselines = {one['size']: one for one in measured if one['row'] == against}
    rows = [['row', 'pixels', 'forward', '', 'fwd+bwd', '', 'memory', 'images/s']]
    rows[0] += ['fwd', 'fwd+bwd', 'memory'] if against else []
    for one in measured:
        cells = [one['row'], str(one['size'])]
        cells += [*time_cells(one['forward']), *time_cells(one['both'])]
        cells.append(f'{one["memory"][0] / 2**20:.0f} MiB' if one['memory'] else '–')
        cells.append(f'{batch / median(one["forward"]):.2f}')
        if against:
            base = baselines[one['size']]
            cells += [ratio(base[key], one[key], 'x') for key in ('forward', 'both')]
            cells.append(ratio(one['memory'], base['memory'], ''))
        rows.append(cells)
    lines = aligned(rows)
    lines.insert(1, '-' * max(map(len, lines)))
    return '\n'.join(lines)


def growth(measured: Sequence[dict]) -> dict[str, float]:
    """By row: the exponent p of its time of a forward pass ~ pixels^p."""
    exponents = {}
    for row in dict.fromkeys(one['row'] for one in measured):
        times = {one['size'] ** 2: median(one['forward']) for one in measured if one['row'] == row}
        exponents[row] = np.polyfit(np.log([*times]), np.log([*times.values()]), 1)[0]
    return exponents


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f'{ROWS}\n\nExample: python tools/analysis/benchmark.py '
        'xcit_tiny_12_p16 --against timm/xcit_tiny_12_p16_224 --sizes 512 1024',
    )
    add = parser.add_argument
    add('rows', nargs='+', metavar='ROW', help='networks to measure, see below')
    add('--against', metavar='ROW', help='the baseline')
    add('--sizes', nargs='+', type=int, default=[512], metavar='PIXELS')
    add('--batch', type=int, default=1, help='images at a time (default: 1)')
    add('--rounds', type=int, default=5, help='measurements of each (default: 5)')
    add('--device', choices=['cpu', 'cuda'], default='cpu')
    add('--amp', action='store_true', help='autocast to bfloat16')
    add('--threads', type=int, default=os.cpu_count(), help='of the CPU (default: all cores)')
    add('--inference-memory', action='store_true', help='memory of a forward pass alone')
    add('--json', type=Path, metavar='FILE', help='write all measurements')
    args = parser.parse_args()
    rows = [args.against, *args.rows] if args.against else args.rows
    args.rows, args.sizes = list(dict.fromkeys(rows)), list(dict.fromkeys(args.sizes))
    return args


def main() -> None:
    args = parse_args()
    measured: list[dict] = []
    for size in args.sizes:
        measured += measure(size, args)
        if args.json:  # after each size, so that an error loses less
            content = dict(args=vars(args), torch=torch.__version__, measured=measured)
            args.json.write_text(json.dumps(content, indent=1, default=str))
    precision = 'float32 with autocast to bfloat16' if args.amp else 'float32'
    print(f'{args.device}, {args.threads} threads, {precision}, batch {args.batch};', end=' ')
    print(f'medians of {args.rounds} rounds in turns, ± half the interquartile range')
    if args.against:
        print(f'ratios to {args.against}: its time / time of the row; memory of the row / its')
    print(make_table(measured, args.against, args.batch))
    if len(args.sizes) > 1:
        for row, exponent in growth(measured).items():
            print(f'{row}: time of a forward pass grows as pixels^{exponent:.2f}')


if __name__ == '__main__':
    main()
