"""Predictions beside the truth, and how a run learned."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

IGNORED = 255


def paint(labels: np.ndarray, palette: Sequence[Sequence[int]]) -> np.ndarray:
    """A label map (H,W) in the colours of its classes, (H,W,3); ignored pixels are white."""
    colours = np.full((256, 3), 255, np.uint8)
    colours[: len(palette)] = palette
    return colours[labels]


def comparison_figure(
    scenes: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]],
    classes: Sequence[str],
    palette: Sequence[Sequence[int]],
    title: str,
) -> Figure:
    """A row for each scene: image (H,W,3), truth and prediction (H,W), where they differ.

    Args:
        scenes: image, true and predicted label map of each.
        classes: names, by label.
        palette: colours, by label.
        title: what is shown.
    """
    figure = Figure(figsize=(12, 2.35 * len(scenes) + 1.3), layout='constrained', dpi=110)
    figure.suptitle(title)
    rows = figure.subplots(len(scenes), 4, squeeze=False)
    for axes, (image, truth, prediction) in zip(rows, scenes, strict=True):
        wrong = (truth != prediction) & (truth != IGNORED)
        errors = np.where(wrong[..., None], (220, 30, 30), image // 2 + 110).astype(np.uint8)
        panels = (image, paint(truth, palette), paint(prediction, palette), errors)
        for ax, panel in zip(axes, panels, strict=True):
            ax.imshow(panel)
            ax.set_axis_off()
        share = wrong.sum() / max((truth != IGNORED).sum(), 1)
        axes[3].set_title(f'wrong: {share:.0%} of the pixels')
    for ax, heading in zip(rows[0], ('image', 'truth', 'prediction'), strict=False):
        ax.set_title(heading)
    present = np.unique(np.concatenate([np.ravel(maps) for _, *maps in scenes]))
    handles = [
        Patch(facecolor=np.divide(palette[label], 255), edgecolor='0.3', label=classes[label])
        for label in present
        if label != IGNORED
    ]
    figure.legend(handles=handles, loc='outside lower center', ncols=9, fontsize=9, frameon=False)
    return figure


def read_scalars(file: Path) -> list[dict]:
    """The records that mmengine's LocalVisBackend wrote, one for each step that was logged."""
    return [json.loads(line) for line in file.read_text().splitlines()]


def learning_curve(records: Sequence[Mapping[str, float]], metric: str, title: str) -> Figure:
    """Training loss and a validation metric over the iterations of a run."""
    figure = Figure(figsize=(8, 4.2), layout='constrained', dpi=110)
    figure.suptitle(title)
    losses = [(r['step'], r['loss']) for r in records if 'loss' in r]
    scores = [(r['step'], r[metric]) for r in records if metric in r]
    ax: Axes = figure.subplots()
    steps, values = np.transpose(losses)
    ax.plot(steps, values, color='0.75', linewidth=1, label='loss')
    width = max(1, len(values) // 20)
    smooth = np.convolve(values, np.ones(width) / width, mode='valid')
    ax.plot(steps[width - 1 :], smooth, color='tab:blue', label=f'loss, mean of {width} records')
    ax.set(xlabel='iteration', ylabel='training loss', ylim=(0, None))
    right = ax.twinx()
    right.plot(
        *np.transpose(scores), 'o-', color='tab:orange', label=f'{metric} on held-out scenes'
    )
    right.set(ylabel=f'{metric} (%)', ylim=(0, 100))
    lines = [*ax.get_lines(), *right.get_lines()]
    ax.legend(lines, [line.get_label() for line in lines], loc='upper center', ncols=3, fontsize=9)
    ax.grid(alpha=0.3)
    return figure
