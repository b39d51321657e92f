"""mIoU of two runs as a function of the width of the band around boundaries."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure


def band_figure(
    shares: Mapping[str, float], curves: Mapping[str, np.ndarray], title: str, note: str
) -> Figure:
    """A figure of the mIoU of runs in P bands.

    Args:
        shares: fraction of all pixels in each band, by name, increasing.
        curves: by the name of a run (3,P): lower bound, score and upper bound.
        title: title of the figure.
        note: text below, such as the kind of intervals.
    """
    figure = Figure(figsize=(8, 4.8), layout='constrained', dpi=110)
    figure.suptitle(title)
    ax = figure.subplots()
    # equidistant: 'all' has no width, and a fraction of the diagonal has many widths in pixels
    steps = np.arange(len(shares))
    for name, (low, scores, high) in curves.items():
        ax.fill_between(steps, low, high, alpha=0.18, linewidth=0)
        ax.plot(steps, scores, 'o-', label=name)
    ax.set_xticks(steps, [f'{band}\n({share:.0%} of pixels)' for band, share in shares.items()])
    ax.set(xlabel='pixels that count: those in a band around true boundaries', ylabel='mIoU (%)')
    ax.grid(alpha=0.3)
    ax.legend()
    figure.supxlabel(note, fontsize=9, color='0.35')
    return figure
