"""Mean IoU of two runs over the width of the band around boundaries."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure


def band_figure(
    shares: Mapping[str, float], curves: Mapping[str, np.ndarray], title: str, note: str
) -> Figure:
    """A picture of it; shares are what of all pixels is in each of P bands, from few to many.

    Curves (3,P) are, for each run by its name, the lower bound of the interval of the score, the
    score, and the upper bound. The note says what intervals these are.
    """
    figure = Figure(figsize=(8, 4.8), layout='constrained', dpi=110)
    figure.suptitle(title)
    ax = figure.subplots()
    # evenly spaced: all pixels are at no width, and a share of the diagonal is at many
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
