"""Mean IoU of two runs over the width of the band around boundaries."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

COLOURS = ('tab:blue', 'tab:orange')


def band_figure(
    shares: Mapping[str, float], curves: Mapping[str, np.ndarray], title: str, note: str
) -> Figure:
    """Mean IoU of two runs over the width of the band in which it is measured.

    Args:
        shares: of all pixels, those in each of P bands, and 1 for ``'all'``, from few to many.
        curves: of each run, by its name: the lower bound of its interval, its score, the upper
            bound, (3,P).
        title: what is shown.
        note: what the shaded intervals are.
    """
    figure = Figure(figsize=(8, 4.8), layout='constrained', dpi=110)
    figure.suptitle(title)
    ax = figure.subplots()
    # evenly spaced: all pixels are at no width, and a share of the diagonal is at many
    steps = np.arange(len(shares))
    for (name, (low, scores, high)), colour in zip(curves.items(), COLOURS, strict=True):
        ax.fill_between(steps, low, high, color=colour, alpha=0.18, linewidth=0)
        ax.plot(steps, scores, 'o-', color=colour, label=name)
    ax.set_xticks(steps, [_label(place, share) for place, share in shares.items()])
    ax.set(xlabel='within what distance of a true boundary pixels count', ylabel='mIoU (%)')
    ax.grid(alpha=0.3)
    ax.legend()
    figure.supxlabel(note, fontsize=9, color='0.35')
    return figure


def _label(place: str, share: float) -> str:
    """The width of a band in words, and how many of the pixels are in it."""
    if place == 'all':
        return 'any\n(all pixels)'
    width = place.removeprefix('band')
    if width.endswith('px'):
        text = f'{width.removesuffix("px")} px'
    else:
        text = f'{100 * float(width):.3g} % of the diagonal'
    return f'{text}\n({share:.0%} of pixels)'
