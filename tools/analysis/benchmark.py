"""Time and memory of networks: forward, forward and backward, at one or more image sizes.

Each network runs in its own process, and the processes take turns: A B A B. With --against, the
last columns are ratios: time of the baseline / time of the network, memory of the network / memory
of the baseline. The memory is the peak of a forward and backward pass, without the weights.
"""

import argparse
import ctypes
import gc
import json
import logging
import os
import runpy
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, nullcontext
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from mmengine.registry import MODELS, init_default_scope
from torch import nn
from torch.utils._pytree import tree_leaves

from mmbixt.backbones.published import PUBLISHED
from mmbixt.checkpoints.sources import near_matches
from mmbixt.cli import read_config
from mmbixt.evaluation.tables import aligned
from mmbixt.progress import progress

ROWS = """\
A ROW is one of
  xcit_tiny_12_p16             a published model (docs/configs.md lists them)
  timm/xcit_tiny_12_p16_224    any model of timm that returns feature maps
  configs/..., mmseg::...      the backbone of a config: a file or one of an installed package
  my_code.py:build             the result of a function in another file (which is executed)
and may end in
  @compiled                    with torch.compile
  @definition                  attentions by their definition, without the faster code
  @onnxruntime, @openvino      exported to ONNX and run there: forward only, float32, on the CPU"""
DTYPES = dict(fp32=torch.float32, bf16=torch.bfloat16, fp16=torch.float16)


class RowError(ValueError):
    """There is no such network, or it cannot be measured."""


# --- Networks by name -----------------------------------------------------------------------------


def split_row(row: str) -> tuple[str, list[str]]:
    """The name of a network, and its modes: the words after an ``@``."""
    name, *modes = row.split('@')
    known = ['compiled', 'definition', *EXPORTED]
    if unknown := set(modes) - set(known):
        raise RowError(f'{unknown.pop()!r} is not a mode. The modes are {", ".join(known)}.')
    if len(set(modes) - {'definition'}) > 1:
        raise RowError('only @definition can be combined with another mode.')
    return name, modes


def build(name: str, size: int) -> nn.Module:
    """A network by its name, without stochastic depth, which skips a random amount of work."""
    if name.startswith('timm/'):
        return build_of_timm(name.removeprefix('timm/'), size)
    if '.py:' in name:
        path, _, function = name.rpartition(':')
        found = runpy.run_path(path)
        if function not in found:
            raise RowError(f'the file has no {function}.')
        return found[function]()
    if name.endswith('.py'):
        cfg = read_config(name)
        init_default_scope(cfg.default_scope)
        backbone = dict(cfg.model.backbone)
        return MODELS.build(backbone | {key: 0.0 for key in backbone if key == 'drop_path_rate'})
    for model in PUBLISHED:
        if model.name == name:
            options = dict(model.at_512) if size >= 512 else {}
            return MODELS.build({**model.backbone, **options, 'drop_path_rate': 0.0})
    near = near_matches(name, [model.name for model in PUBLISHED])
    raise RowError(f'there is no such network.{near} {ROWS}')


def build_of_timm(name: str, size: int) -> nn.Module:
    import timm

    if name not in timm.list_models():
        near = near_matches(name, timm.list_models())
        raise RowError(f'timm {timm.__version__} has no such model.{near}')
    options = dict(img_size=size) if name.startswith(('cait', 'deit', 'swin', 'vit_')) else {}
    return timm.create_model(name, features_only=True, **options)


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

    # without the hint it computes in bfloat16 on some processors
    options = dict(INFERENCE_NUM_THREADS=threads, INFERENCE_PRECISION_HINT='f32')
    program = openvino.compile_model(openvino.convert_model(file), 'CPU', options)
    return lambda: program([images], share_outputs=True)


EXPORTED = dict(onnxruntime=in_onnxruntime, openvino=in_openvino)


class Network:
    """The network of a row, and images; ``args`` are those of the command."""

    def __init__(self, row: str, size: int, args: argparse.Namespace) -> None:
        warnings.simplefilter('ignore')
        logging.disable(logging.WARNING)  # of onnxscript about parts that it does not optimise
        torch.set_num_threads(args.threads)
        torch.manual_seed(0)
        name, modes = split_row(row)
        self.is_gpu, dtype = args.device == 'cuda', DTYPES[args.dtype]
        self.model = build(name, size).to(args.device, dtype)
        torch.set_default_dtype(dtype)  # of the masks that mmseg's Swin makes when it runs
        image = torch.randn(args.batch, 3, size, size).to(args.device, dtype)
        self.is_compiled = 'compiled' in modes
        call = torch.compile(self.model) if self.is_compiled else self.model
        self.run: Callable[[], Any] = lambda: call(image)
        self.program = next((mode for mode in modes if mode in EXPORTED), None)
        if self.program and (args.device, args.dtype) != ('cpu', 'fp32'):
            raise RowError(f'@{self.program} takes --device cpu and --dtype fp32 only.')
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
            forward = self._seconds(self.run)
        if self.program:
            return dict(forward=forward)
        self.model.train()
        self.model.zero_grad(set_to_none=False)
        return dict(forward=forward, both=self._seconds(self._train))

    def memory(self) -> dict[str, int]:
        """Peak bytes of both passes beyond what the process had; to be measured first of all."""
        if self.program:
            return {}
        self.model.train()
        if self.is_compiled or self.is_gpu:  # compilers and libraries of GPUs allocate at first
            self._train()
            self.model.zero_grad()
            gc.collect()
            ctypes.CDLL(None).malloc_trim(0)  # the C library keeps what is freed
        if self.is_gpu:
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            self._train()
            return dict(memory=torch.cuda.max_memory_allocated() - before)
        limit_of_heap(2**17)
        before = resident('VmRSS')
        Path('/proc/self/clear_refs').write_text('5')  # resets the peak to the current value
        self._train()
        peak = resident('VmHWM')
        limit_of_heap(2**25)  # the largest that glibc chooses by itself
        return dict(memory=peak - before)

    def _train(self) -> None:
        sum(x.float().sum() for x in tree_leaves(self.run())).backward()

    def _seconds(self, run: Callable[[], Any]) -> float:
        wait = torch.cuda.synchronize if self.is_gpu else lambda: None
        wait()
        start = time.perf_counter()
        run()
        wait()
        return time.perf_counter() - start


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


def get(what: str, row: str, *others: Any) -> dict:
    """The result of a method of a :class:`Network`, which is built at the first call."""
    from mmbixt.attention import by_definition

    try:
        with by_definition() if 'definition' in split_row(row)[1] else nullcontext():
            if not NETWORKS:
                NETWORKS.append(Network(row, *others))
            return getattr(NETWORKS[0], what)()
    except Exception as error:  # the other process may not know its class
        kind = '' if isinstance(error, RowError) else f'{type(error).__name__}: '
        raise RuntimeError(f'{kind}{error}') from None


# --- All networks in turns ------------------------------------------------------------------------


def ask(pool: ProcessPoolExecutor, what: str, row: str, *others: Any) -> dict:
    """The result of :func:`get` in another process."""
    try:
        return pool.submit(get, what, row, *others).result()
    except BrokenProcessPool:  # killed, most likely for its memory
        error = 'its process ended without a result; is there enough memory?'
    except RuntimeError as raised:
        error = raised
    raise SystemExit(f'error: {row}: {error}')


def measure(size: int, args: argparse.Namespace, step: Callable[[], Any]) -> list[dict]:
    """Measurements of each row at a size: lists of seconds (forward, both) and bytes (memory)."""
    found = [dict(row=row, size=size, forward=[], both=[], memory=[]) for row in args.rows]
    with ExitStack() as stack:
        pools = [stack.enter_context(ProcessPoolExecutor(1, get_context('spawn'))) for _ in found]
        for what in ['memory', *['turn'] * (1 + args.rounds)]:
            for one, pool in zip(found, pools, strict=True):
                for key, value in ask(pool, what, one['row'], size, args).items():
                    one[key].append(value)
                step()
    for one in found:  # the first turn was for warm-up
        del one['forward'][0], one['both'][:1]
    return found


# --- Tables and plots -----------------------------------------------------------------------------


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


def make_table(found: Sequence[dict], against: str | None, batch: int) -> str:
    """A table of all rows and sizes."""
    baselines = {one['size']: one for one in found if one['row'] == against}
    rows = [['row', 'pixels', 'forward', '', 'fwd+bwd', '', 'memory', 'images/s']]
    rows[0] += ['fwd', 'fwd+bwd', 'memory'] if against else []
    for one in found:
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


def growth(found: Sequence[dict], key: str) -> dict[str, tuple[list, list, float]]:
    """By row: numbers of pixels, medians, and the exponent p of medians ~ pixels^p."""
    lines = {}
    for row in dict.fromkeys(one['row'] for one in found if one[key]):
        sizes = sorted((one['size'], median(one[key])) for one in found if one['row'] == row)
        pixels, values = [size**2 for size, _ in sizes], [value for _, value in sizes]
        lines[row] = pixels, values, float(np.polyfit(np.log(pixels), np.log(values), 1)[0])
    return lines


def plot_growth(found: Sequence[dict], path: Path) -> None:
    """Time and memory over the number of pixels, with logarithmic axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(18, 5.5), layout='constrained')
    titles = dict(forward='forward (s)', both='forward and backward (s)', memory='memory (bytes)')
    sizes = sorted({one['size'] for one in found})
    for axes, (key, title) in zip(figure.subplots(1, 3), titles.items(), strict=True):
        for row, (pixels, values, exponent) in growth(found, key).items():
            axes.loglog(pixels, values, marker='o', label=f'{row}: pixels^{exponent:.2f}')
        axes.set_xticks([size**2 for size in sizes], [f'{size}²' for size in sizes])
        axes.minorticks_off()
        axes.set(title=title, xlabel='pixels')
        axes.grid(alpha=0.3)
        axes.legend(fontsize='small')
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


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
    add('--compiled', action='store_true', help='all of them with torch.compile')
    add('--sizes', nargs='+', type=int, default=[512], metavar='PIXELS')
    add('--batch', type=int, default=1, help='images at a time (default: 1)')
    add('--rounds', type=int, default=5, help='measurements of each (default: 5)')
    add('--device', choices=['cpu', 'cuda'], default='cpu')
    add('--dtype', choices=list(DTYPES), default='fp32', help='of weights and images')
    add('--threads', type=int, default=os.cpu_count(), help='of the CPU (default: all cores)')
    add('--json', type=Path, metavar='FILE', help='write all measurements')
    add('--plot', type=Path, metavar='PNG', help='plot time and memory over the number of pixels')
    args = parser.parse_args()
    if args.plot and len(set(args.sizes)) < 2:
        parser.error('--plot shows growth: give two --sizes or more.')
    if args.device == 'cuda' and not torch.cuda.is_available():
        parser.error('--device cuda: torch finds no GPU.')
    if min(args.rounds, args.batch, args.threads, *args.sizes) < 1:
        parser.error('--rounds, --batch, --threads and --sizes must be at least 1.')
    rows = [args.against, *args.rows] if args.against else args.rows
    if args.compiled:
        rows = [row if '@compiled' in row else f'{row}@compiled' for row in rows]
    args.against = rows[0] if args.against else None
    args.rows, args.sizes = list(dict.fromkeys(rows)), list(dict.fromkeys(args.sizes))
    return args


def main() -> None:
    args = parse_args()
    found: list[dict] = []
    with progress(total=len(args.sizes) * len(args.rows) * (args.rounds + 2)) as bar:
        for size in args.sizes:
            found += measure(size, args, bar.update)
            if args.json:  # after each size, so that an error loses less
                content = dict(args=vars(args), torch=torch.__version__, measured=found)
                args.json.write_text(json.dumps(content, indent=1, default=str))
    print(f'{args.device}, {args.threads} threads, {args.dtype}, batch {args.batch};', end=' ')
    print(f'medians of {args.rounds} rounds in turns, ± half the interquartile range')
    if args.against:
        print(f'ratios to {args.against}: its time / time of the row; memory of the row / its')
    print(make_table(found, args.against, args.batch))
    if len(args.sizes) > 1:
        for row, (*_, exponent) in growth(found, 'forward').items():
            print(f'{row}: time of a forward pass grows as pixels^{exponent:.2f}')
    if args.plot:
        plot_growth(found, args.plot)
        print(f'plot: {args.plot}')


if __name__ == '__main__':
    main()
