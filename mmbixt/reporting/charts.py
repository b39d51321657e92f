"""Line charts in SVG, in the colours of the page that they are in."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.ticker import MaxNLocator

from mmbixt.reporting.markup import Markup, element, join

# about the width of a phone, so that text there has the size that it says
WIDTH, HEIGHT = 400, 250
LEFT, RIGHT, TOP, BOTTOM = 54, 16, 12, 44
MOST_POINTS = 400
RAISED = str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹')


@dataclass(frozen=True)
class Series:
    """A line.

    Attributes:
        name: for the legend.
        points: iterations and values (P,2), in order.
        style: 'one', 'two' ...: its colour; 'faint': what another line smooths.
        dots: mark each point, where there are few.
    """

    name: str
    points: np.ndarray
    style: str
    dots: bool = False


@dataclass(frozen=True)
class Scale:
    """From values to places in the picture.

    Attributes:
        low, high: values.
        start, end: places of theirs.
    """

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)


def chart(title: str, note: str, series: Sequence[Series], unit: str) -> Markup:
    """A figure with a heading, a legend, axes and lines; the page's script shows values.

    Args:
        title: what is shown.
        note: a sentence that says what it means.
        series: lines.
        unit: label of the vertical axis.
    """
    series = [Series(s.name, thin(s.points), s.style, s.dots) for s in series]
    points = np.concatenate([line.points for line in series])
    across = Scale(0, max(1, float(points[:, 0].max())), LEFT, WIDTH - RIGHT)
    ticks = nice_ticks(min(0, float(points[:, 1].min())), float(points[:, 1].max()))
    up = Scale(ticks[0], ticks[-1], HEIGHT - BOTTOM, TOP)
    picture = element(
        'svg',
        axes(across, up, ticks, unit),
        *(draw(line, across, up) for line in series),
        element('line', class_='cursor', y1=TOP, y2=HEIGHT - BOTTOM, x1=0, x2=0),
        viewBox=f'0 0 {WIDTH} {HEIGHT}',
        role='img',
        aria_label=f'{title}: {unit} over iterations',
    )
    return element(
        'figure',
        element('h3', title),
        element('p', note, class_='note'),
        legend(series),
        picture,
        element('p', '\xa0', class_='readout'),
        class_='chart',
        data_series=json.dumps([dict(name=s.name, points=s.points.tolist()) for s in series]),
        data_scale=json.dumps([across.low, across.high, across.start, across.end, WIDTH]),
    )


def legend(series: Sequence[Series]) -> Markup:
    items = (
        element('li', element('span', class_=f'key {line.style}'), line.name) for line in series
    )
    return element('ul', *items, class_='legend')


def axes(across: Scale, up: Scale, ticks: Sequence[float], unit: str) -> Markup:
    """Grid, numbers and what they are; very small ones in units of a power of ten."""
    power = min(0, math.floor(math.log10(max(map(abs, ticks)))))
    power = power if power < -1 else 0
    if power:
        unit += f' (in 10{str(power).translate(RAISED)})'
    left, right, floor = across.start, across.end, up.start
    parts = []
    for tick in ticks:
        y = up(tick)
        parts.append(element('line', x1=left, x2=right, y1=y, y2=y, class_='grid'))
        parts.append(element('text', short(tick / 10**power), x=left - 6, y=y + 4, class_='of-y'))
    for tick in nice_ticks(across.low, across.high):
        if tick <= across.high:
            x = across(tick)
            parts.append(element('line', x1=x, x2=x, y1=floor, y2=floor + 4, class_='grid'))
            parts.append(element('text', short(tick), x=x, y=floor + 17, class_='of-x'))
    middle = (up.start + up.end) / 2
    turned = f'rotate(-90 12 {middle:g})'
    parts.append(element('text', unit, x=12, y=middle, transform=turned, class_='name'))
    across_middle = (left + right) / 2
    parts.append(element('text', 'iteration', x=across_middle, y=HEIGHT - 8, class_='name'))
    return join(*parts)


def draw(line: Series, across: Scale, up: Scale) -> Markup:
    places = [(across(x), up(y)) for x, y in line.points]
    text = ' '.join(f'{x:g},{y:g}' for x, y in places)
    parts = [element('polyline', points=text, class_=f'line {line.style}')]
    if line.dots:
        for (x, y), (step, value) in zip(places, line.points, strict=True):
            said = element('title', f'{line.name}: {short(value)} at iteration {step:,.0f}')
            parts.append(element('circle', said, cx=x, cy=y, r=3.5, class_=line.style))
    return join(*parts)


def smooth(points: np.ndarray, width: int) -> np.ndarray:
    """The mean of each record and of those before it, as many as the width together, (P,2)."""
    means = np.convolve(points[:, 1], np.ones(width) / width, mode='valid')
    return np.column_stack([points[width - 1 :, 0], means])


def thin(points: np.ndarray) -> np.ndarray:
    """At most as many points as a picture can show, each the mean of its neighbours."""
    if len(points) <= MOST_POINTS:
        return points
    return np.stack([part.mean(0) for part in np.array_split(points, MOST_POINTS)])


def nice_ticks(low: float, high: float) -> list[float]:
    """Round numbers from below the lowest to above the highest value."""
    if low == high:
        high = low + 1
    return MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high).tolist()


def short(value: float) -> str:
    """A number as short as it is understood."""
    if abs(value) >= 10_000:
        return f'{value / 1000:g}k'
    return f'{value:.3g}' if abs(value) < 1000 else f'{value:.0f}'
