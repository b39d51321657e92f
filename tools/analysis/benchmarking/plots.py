"""Plots of time and memory over the number of pixels, with logarithmic axes."""

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import numpy as np

from benchmarking.turns import Measured

PANELS = {
    'forward and backward (s)': lambda one: median(one.both),
    'memory (GiB)': lambda one: one.memory / 2**30,
}


def fit_exponent(
    rows: Sequence[Measured], value: Callable[[Measured], float] = lambda one: median(one.both)
) -> float:
    """Least-squares exponent p of value ~ pixels^p."""
    pixels, values = [one.size**2 for one in rows], [value(one) for one in rows]
    return float(np.polyfit(np.log(pixels), np.log(values), 1)[0])


def plot_growth(found: Sequence[Measured], path: Path) -> None:
    """One line for each network, with its exponent in the legend."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 5.5), layout='constrained')
    for axes, (label, value) in zip(figure.subplots(1, 2), PANELS.items(), strict=True):
        for name in dict.fromkeys(one.name for one in found):
            rows = sorted((one for one in found if one.name == name), key=lambda one: one.size)
            text = f'{name}: pixels^{fit_exponent(rows, value):.2f}'
            pixels = [one.size**2 for one in rows]
            axes.loglog(pixels, [value(one) for one in rows], marker='o', label=text)
        sizes = sorted({one.size for one in found})
        axes.set_xticks([size**2 for size in sizes], [f'{size}²' for size in sizes])
        axes.minorticks_off()
        axes.set_xlabel('pixels')
        axes.set_title(label)
        axes.grid(alpha=0.3)
        axes.legend(fontsize='small')
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
