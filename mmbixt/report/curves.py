"""Training curves as SVG pictures, in the colors of the page."""

from io import BytesIO
from xml.etree import ElementTree

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from mmbixt.report.scores import describe
from mmbixt.report.work_dir import DETECTION, Run

INK = '#010203'  # replaced by currentColor, the color of the style sheet
STYLE = dict.fromkeys(('text.color', 'axes.labelcolor', 'xtick.color', 'ytick.color'), INK) | {
    'font.family': 'DejaVu Sans',  # to estimate widths; the page sets another font
    'font.size': 12,
    'svg.fonttype': 'none',
    'axes.autolimit_mode': 'round_numbers',
    'axes.ymargin': 0,
}
SVG = '{http://www.w3.org/2000/svg}'
ElementTree.register_namespace('', SVG[1:-1])
ElementTree.register_namespace('xlink', 'http://www.w3.org/1999/xlink')
Line = tuple[str, str, list]  # label, CSS class, steps and values (P,2)


def training_charts(run: Run, band: str) -> dict[str, list[Line]]:
    """Lines of loss, learning rate and validation scores, if they were logged."""
    loss = run.curve('loss')
    width = len(loss) // 20
    losses = [('as recorded', 'faint' if width > 1 else 'one', thin(loss))]
    if width > 1:
        means = np.convolve(loss[:, 1], np.ones(width) / width, mode='valid')
        smooth = np.column_stack([loss[width - 1 :, 0], means])
        losses.append((f'mean of {width} records', 'one', thin(smooth)))
    overall = 'mIoU' if len(run.curve('mIoU')) else 'all/mIoU'
    scores = {overall: 'all pixels', f'{band}/mIoU': describe(band).lower()}
    names = DETECTION if run.detects else scores
    validations = [
        (label, f'{color} dots', thin(run.curve(name)))
        for color, (name, label) in zip(('one', 'two', 'three'), names.items(), strict=False)
    ]
    rates = [('learning rate', 'one', thin(run.curve('lr')))]
    charts = dict(loss=losses, rate=rates, validation=validations)
    return {name: [line for line in lines if line[2]] for name, lines in charts.items()}


def thin(points: np.ndarray) -> list:
    """At most 400 points (P,2), each the mean of neighbouring ones."""
    parts = np.array_split(points, min(len(points), 400) or 1)
    return [part.mean(0).tolist() for part in parts if len(part)]


def draw(lines: list[Line], unit: str, last_step: float) -> str:
    """An SVG picture of lines from iteration 0 to the last, for inclusion in a page."""
    with rc_context(STYLE | {'svg.hashsalt': unit}):  # ids that differ from other pictures'
        figure = Figure(figsize=(400 / 72, 250 / 72), layout='constrained')  # about a phone's width
        axes = figure.subplots()
        axes.axvline(0, color=INK, linewidth=1, linestyle=':', clip_on=False, gid='cursor')
        for _, kind, points in lines:
            about = dict(marker='o' * ('dots' in kind), gid=kind, clip_on=False)
            axes.plot(*np.transpose(points), color=INK, linewidth=1 + (kind != 'faint'), **about)
        top = not any(value for line in lines for _, value in line[2])  # 1 if all values are 0
        axes.axhline(top, linewidth=0, clip_on=False)
        axes.locator_params(nbins=5)
        axes.set(xlabel='iteration', ylabel=unit, xlim=(0, last_step))
        axes.xaxis.set_major_formatter(EngFormatter(sep=''))
        axes.ticklabel_format(axis='y', scilimits=(-2, 4))
        axes.tick_params(length=0, pad=6)
        axes.grid(axis='y', color=INK, clip_on=False, gid='grid')
        axes.spines[:].set_visible(False)
        figure.savefig(file := BytesIO(), format='svg', transparent=True)
    root = ElementTree.fromstring(file.getvalue().decode().replace(INK, 'currentColor'))
    root[:] = root.findall(f'{SVG}g')  # without metadata, and styles that affect the whole page
    del root.attrib['width'], root.attrib['height']
    for group in root.iter(f'{SVG}g'):
        group.set('class', group.attrib.pop('id', ''))  # other pictures have the same ids
    return ElementTree.tostring(root, 'unicode')
