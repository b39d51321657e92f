"""Tables that the page's script sorts by a click on a heading."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mmbixt.reporting.figures import ClassRow, Place, Score, words
from mmbixt.reporting.markup import Markup, as_markup, element, join

NOTHING = '–'
GAP = 4  # its column in the table of classes: right after that of all pixels


@dataclass(frozen=True)
class Column:
    """A heading.

    Attributes:
        title: its text.
        note: what it means, shown when pointed at.
        number: whether its cells are numbers.
    """

    title: str
    note: str
    number: bool = True


@dataclass(frozen=True)
class Cell:
    """What a cell says, and by what its row is sorted; NaN comes last whichever way."""

    text: object
    value: float | str


def table(
    caption: str,
    columns: Sequence[Column],
    rows: Sequence[Sequence[Cell]],
    dim: Sequence[bool] = (),
    sorted_by: str = '',
) -> Markup:
    """A table; the first cell of each row is its heading.

    Args:
        caption: what is shown, for those who hear the page.
        columns: headings.
        rows: cells.
        dim: for each row, whether it is to stand back.
        sorted_by: the heading by which the rows are sorted already, from the top.
    """
    headings = (
        element(
            'th',
            element('button', column.title, type='button', title=column.note),
            scope='col',
            class_='number' if column.number else None,
            aria_sort='descending' if column.title == sorted_by else 'none',
        )
        for column in columns
    )
    body = (
        element('tr', *map(_cell, cells, columns), class_='dim' if dims else None)
        for cells, dims in zip(rows, dim or [False] * len(rows), strict=True)
    )
    inner = element(
        'table',
        element('caption', caption),
        element('thead', element('tr', *headings)),
        element('tbody', *body),
    )
    return element('div', inner, class_='scroll', tabindex=0, role='region', aria_label=caption)


def _cell(cell: Cell, column: Column) -> Markup:
    value = None if isinstance(cell.value, float) and math.isnan(cell.value) else cell.value
    if column.number:
        return element('td', cell.text, class_='number', data_value='' if value is None else value)
    return element('th', cell.text, scope='row', data_value=value)


def place_table(places: Sequence[Place]) -> Markup:
    """All pixels against the bands, and against Boundary IoU and F."""
    columns = [
        Column('Which pixels', 'All, or those near boundaries only', number=False),
        Column('Share of pixels', 'How many of all pixels these are'),
        Column('mIoU', 'Mean over the classes of the overlap of prediction and truth'),
        Column('Right pixels', 'Share of pixels with the true class'),
        Column('Gap', 'How much of the mIoU over all pixels is lost in the band'),
    ]
    rows = [
        [
            Cell(words(place.name), rank),
            _percent(place.share),
            _score(place.mean),
            _percent(place.accuracy),
            _score(place.gap),
        ]
        for rank, place in enumerate(places)
    ]
    caption = 'Scores everywhere and near boundaries'
    return table(caption, columns, rows)


def detection_table(found: Mapping[str, float], kinds: Mapping[str, str]) -> Markup:
    """COCO's scores.

    Args:
        found: scores by mmdet's names.
        kinds: of what they are, by the name of the mean.
    """
    parts = {
        '': Column('mAP', 'Mean over demands on the overlap from 0.5 to 0.95'),
        '_50': Column('Overlap 0.5', 'An object is found if it overlaps by 0.5'),
        '_75': Column('Overlap 0.75', 'An object is found if it overlaps by 0.75'),
        '_s': Column('Small', 'mAP of objects below 32 x 32 pixels'),
        '_m': Column('Medium', 'mAP of objects up to 96 x 96 pixels'),
        '_l': Column('Large', 'mAP of objects above 96 x 96 pixels'),
    }
    rows = [
        [Cell(kind.capitalize(), kind), *(_share(found.get(f'{name}{end}', -1)) for end in parts)]
        for name, kind in kinds.items()
        if name in found
    ]
    columns = [Column('Of what', 'Boxes, masks or the edges of masks', number=False)]
    return table('How well objects are found', [*columns, *parts.values()], rows)


def class_table(rows: Sequence[ClassRow], band: str | None) -> Markup:
    """IoU of each class at every place; the gap is that of the band."""
    places = list(rows[0].scores)
    columns = [
        Column('Class', 'Its name in the data set', number=False),
        Column('Images', 'In how many images the class is, by the truth'),
        Column('Share of pixels', 'How many of all true pixels are of the class'),
        *(Column(_short(place), f'IoU: {words(place)}') for place in places),
    ]
    if band:
        note = f'How much of the IoU over all pixels is lost: {words(band)}'
        columns.insert(GAP, Column(f'Gap, {_short(band).lower()}', note))
    cells = []
    for row in rows:
        line = [Cell(row.name, row.name), Cell(f'{row.images:,}', row.images)]
        line += map(_percent, (row.share, *row.scores.values()))
        if band:
            line.insert(GAP, _percent(row.gap))
        cells.append(line)
    dim = [not row.images for row in rows]
    return table('IoU of each class', columns, cells, dim, sorted_by='Share of pixels')


def _short(place: str) -> str:
    """A heading that leaves room for others."""
    if place == 'all':
        return 'All'
    return words(place).replace('Band of', 'Band').replace(' of the diagonal', '')


def _percent(value: float | None) -> Cell:
    if value is None or math.isnan(value):
        return Cell(NOTHING, math.nan)
    text = '< 0.1' if 0 < value < 0.05 else f'{value:.1f}'
    return Cell(text.replace('-', '−'), round(value, 4))


def _share(value: float) -> Cell:
    """A number from 0 to 1; mmdet has -1 where there are no objects."""
    return Cell(NOTHING, math.nan) if value < 0 else Cell(f'{value:.3f}', value)


def _score(score: Score | None) -> Cell:
    """A percentage above its interval."""
    if score is None:
        return Cell(NOTHING, math.nan)
    cell = _percent(score.value)
    return Cell(join(as_markup(cell.text), interval(score)), cell.value)


def interval(score: Score) -> Markup:
    """What would be expected of other images like these; nothing where it is not known."""
    if score.interval is None:
        return Markup()
    low, high = score.interval
    return element('small', f'{low:.1f} to {high:.1f}', class_='interval')
