"""Tables as text, above all of scores."""

from collections.abc import Mapping, Sequence

import numpy as np

from mmbixt.evaluation.boundary import main_band

SIDE_BY_SIDE = ('mIoU', 'mAcc', 'aAcc')


def main_table(runs: Mapping[str, Mapping[str, float]]) -> str:
    """Scores over all pixels and over one band side by side, as in Table 2 of the BiSA paper; for
    two runs also the relative gain of the second, 100 (second - first) / first."""
    first, *others = runs.values()
    places = dict(all='All')
    if band := main_band(first):
        places[band] = f'Boundary ({band})'
    columns = [f'{where}/{what}' for where in places for what in SIDE_BY_SIDE]
    rows = [('', SIDE_BY_SIDE * len(places))]
    rows += [(name, [f'{found[c]:.2f}' for c in columns]) for name, found in runs.items()]
    if len(others) == 1:
        pairs = [(first[c], others[0][c]) for c in columns]
        gains = [100 * (after - before) / before if before else np.nan for before, after in pairs]
        rows.append(('relative gain', [f'{gain:+.2f}%' for gain in gains]))
    width = max(len(name) for name, _ in rows)
    titles = ''.join(f'{title:^{9 * len(SIDE_BY_SIDE)}}' for title in places.values())
    lines = [f'{"":{width}}{titles}'.rstrip()]
    for name, cells in rows:
        lines.append(f'{name:{width}}' + ''.join(f'{cell:>9}' for cell in cells))
    return '\n'.join(lines)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table, with the first column aligned left and the others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *cells in rows:
        cells = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
        lines.append('  '.join([first.ljust(widths[0]), *cells]).rstrip())
    return lines


def class_table(classes: Sequence[str], columns: dict[str, np.ndarray]) -> str:
    """A line for each class that occurs, a column for each score."""
    scored = ~np.isnan(list(columns.values())).all(0)
    rows = [['class', *columns]]
    for k in np.flatnonzero(scored):
        rows.append([classes[k], *(f'{values[k]:.2f}' for values in columns.values())])
    return '\n'.join([*aligned(rows), *absent_classes(scored)])


def absent_classes(scored: np.ndarray) -> list[str]:
    """The last line of a table if classes are missing in it; `scored` (K,) is False for those."""
    if scored.all():
        return []
    return [f'({(~scored).sum()} of {len(scored)} classes are in neither truth nor prediction.)']
