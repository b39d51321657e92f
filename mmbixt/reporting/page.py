"""The page: what a run left, in sections that a stranger understands."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from string import Template

import numpy as np

from mmbixt.evaluation.bootstrap import LEVEL
from mmbixt.evaluation.sums import ImageSums
from mmbixt.reporting.charts import Series, chart, smooth
from mmbixt.reporting.figures import (
    BAND,
    Place,
    Score,
    class_rows,
    error_share,
    place_scores,
    words,
)
from mmbixt.reporting.gallery import Exhibit, Gallery, Picture
from mmbixt.reporting.markup import Markup, element, join
from mmbixt.reporting.python_code import highlight
from mmbixt.reporting.tables import NOTHING, class_table, detection_table, place_table
from mmbixt.reporting.work_dir import Run, test_set

#: What mmdet's scores are about, by their names.
DETECTION = {
    'coco/bbox_mAP': 'boxes',
    'coco/segm_mAP': 'masks',
    'coco/boundary_mAP': 'mask edges',
}
OPEN = 2  # of each group, so many images show their attention at once; others when asked
STYLES = ('one', 'two', 'three')


@dataclass(frozen=True)
class Material:
    """What a page is made of.

    Attributes:
        run: of the work dir.
        parameters: of the model, that is numbers which it learned; None if it was not built.
        band: name of the band that the page is about; None if there is none.
        counted: counts of each image of the test set; None if there are none.
        gallery: pictures; None if there are none.
        uncounted: a sentence that says why there are no counts.
        undrawn: a sentence that says why there are no pictures.
        weights: name of the checkpoint; empty if the model was not run.
    """

    run: Run
    parameters: int | None
    band: str | None = None
    counted: ImageSums | None = None
    gallery: Gallery | None = None
    uncounted: str = ''
    undrawn: str = ''
    weights: str = ''

    @property
    def shortcomings(self) -> list[str]:
        """What the page lacks, and why."""
        lacks = {}
        if not self.counted and not self.run.detects:
            lacks[self.uncounted] = 'no scores near boundaries'
        if not self.gallery and not self.run.detects:
            lacks[self.undrawn] = ', '.join(
                [*filter(None, [lacks.get(self.undrawn)]), 'no pictures']
            )
        return [*self.run.unreadable, *(f'{what}: {why}' for why, what in lacks.items())]


def make_page(material: Material) -> str:
    """The whole HTML file."""
    run = material.run
    places = place_scores(material.counted) if material.counted else []
    sections = {'Training': training(run, material.band or BAND)}
    if run.detects:
        sections |= {'Scores': of_objects(run)}
    else:
        sections |= {
            'Scores': everywhere(material, places),
            'Classes': by_class(material),
            'Pictures': pictures(material),
        }
    sections |= {'Configuration': configuration(run)}
    anchors = [(name.lower(), name) for name in sections]
    inside = files('mmbixt.reporting').joinpath('page')
    template = Template(inside.joinpath('template.html').read_text('utf-8'))
    return template.substitute(
        title=element('title', f'{run.name}: report of a run'),
        style=inside.joinpath('style.css').read_text('utf-8'),
        script=inside.joinpath('script.js').read_text('utf-8'),
        navigation=join(*(element('a', name, href=f'#{anchor}') for anchor, name in anchors)),
        head=head(material, places),
        main=join(
            *(
                element('section', element('h2', name), content, id=anchor)
                for (anchor, name), content in zip(anchors, sections.values(), strict=True)
            )
        ),
    )


def head(material: Material, places: Sequence[Place]) -> Markup:
    """What was run, and how it ended."""
    run = material.run
    facts = [
        model_words(run),
        dataset_words(run),
        f'{run.iterations:,} iterations of training' if run.iterations else None,
        f'{material.parameters / 1e6:.1f} million parameters' if material.parameters else None,
        f'weights of {material.weights}' if material.weights else None,
        f'{run.date:%d %B %Y}'.lstrip('0') if run.date else None,
    ]
    generated = None
    if run.generated:
        generated = element(
            'p',
            'The images are generated scenes (',
            element('code', '--sample'),
            '), made to try things out: these scores say nothing about photographs.',
            class_='notice',
        )
    return join(
        element('p', 'mmbixt: report of a run', class_='note'),
        element('h1', run.name),
        element('ul', *(element('li', fact) for fact in facts if fact), class_='facts'),
        generated,
        element('p', introduction(material, places)),
        tiles(material, places),
    )


def introduction(material: Material, places: Sequence[Place]) -> str:
    """What the model is for, and where its errors are."""
    if material.run.detects:
        return 'The model finds objects in images: what they are, and where.'
    text = 'The model gives each pixel of an image a class, such as road or sky.'
    by_name = {place.name: place for place in places}
    if not material.band:
        return text
    near = by_name[material.band]
    share = error_share(by_name['all'], near)
    if math.isnan(share):
        return text
    return (
        f'{text} Of its errors {share:.0f} % are in the {words(near.name).lower()} around the '
        f'boundaries between classes, where {near.share:.0f} % of the pixels are.'
    )


def model_words(run: Run) -> str:
    backbone = run.config.model.get('backbone', {}).get('type', '').rpartition('.')[2]
    heads = (run.config.model.get(key) for key in ('decode_head', 'roi_head', 'bbox_head'))
    head = next((found for found in heads if found), None)
    last = head[-1] if isinstance(head, list) else head or {}
    parts = [run.config.model.type, backbone, last.get('type', '')]
    return ' · '.join(part for part in parts if part)


def dataset_words(run: Run) -> str:
    name = test_set(run.config).get('type', 'data set of an unknown kind').removesuffix('Dataset')
    return f'generated scenes in the layout of {name}' if run.generated else name


def tiles(material: Material, places: Sequence[Place]) -> Markup:
    """The scores that matter most, large."""
    by_name = {place.name: place for place in places}
    if not places:
        unit = '' if material.run.detects else '%'
        found = final_scores(material.run)
        names = {'all/mIoU': 'mIoU'} | {key: f'mAP of {kind}' for key, kind in DETECTION.items()}
        cards = [
            tile(names.get(name, name), Score(found[name]), unit, 'of the last evaluation')
            for name in ('mIoU', 'all/mIoU', *DETECTION)
            if name in found
        ]
        return element('div', *cards, class_='tiles')
    everywhere, near = by_name['all'], by_name.get(material.band)
    text = 'overlap of prediction and truth, mean of the classes'
    cards = [tile('mIoU, all pixels', everywhere.mean, '%', text)]
    if near:
        text = 'the same, of pixels near boundaries only'
        cards.append(tile(f'mIoU, {words(near.name).lower()}', near.mean, '%', text))
        cards.append(tile('Gap', near.gap, '%', 'how much of it is lost near boundaries'))
    text = 'share of the pixels with the true class'
    cards.append(tile('Right pixels', Score(everywhere.accuracy), '%', text))
    return element('div', *cards, class_='tiles')


def tile(name: str, score: Score, unit: str, text: str) -> Markup:
    number = NOTHING
    if not math.isnan(score.value):
        number = f'{score.value:.1f}' if unit else f'{score.value:.3f}'
    return element(
        'div',
        element('p', name),
        element('p', number, element('span', f' {unit}'), class_='value'),
        element('p', text, class_='note'),
        class_='tile',
    )


def final_scores(run: Run) -> dict[str, float]:
    """What the last test, or else the last validation, came to, without times and steps."""
    means = {'mIoU', 'all/mIoU', *DETECTION}
    logged = [record for record in (*run.records, run.results) if means & record.keys()]
    last = logged[-1] if logged else {}
    return {name: last[name] for name in last if name not in ('time', 'data_time', 'step')}


# --- Training --------------------------------------------------------------------------------


def training(run: Run, band: str) -> Markup:
    """How the run learned."""
    notes = [element('p', sentence, class_='notice') for sentence in run.unreadable]
    losses = points(run, 'loss')
    if not len(losses):
        return join(
            *notes,
            missing('No records of training are in this folder (TIMESTAMP/vis_data/scalars.json).'),
        )
    width = len(losses) // 20
    lines = [Series('as recorded', losses, 'faint' if width > 1 else 'one')]
    if width > 1:
        lines.append(Series(f'mean of {width} records', smooth(losses, width), 'one'))
    text = 'What training makes small, on the images that it learns from.'
    charts = [chart('Training loss', text, lines, 'loss')]
    rates = points(run, 'lr')
    if len(rates):
        text = 'How large the steps are in which the weights change.'
        lines = [Series('learning rate', rates, 'one')]
        charts.append(chart('Learning rate', text, lines, 'learning rate'))
    lines = validation(run, band)
    if lines:
        text = 'How well it does on images that it does not learn from.'
        unit = 'mAP' if run.detects else 'mIoU (%)'
        charts.append(chart('Validation', text, lines, unit))
    else:
        charts.append(missing('The run was not evaluated while it was trained.'))
    if lines and not run.detects and len(lines) == 1:
        text = "Near boundaries nothing was measured during training. dict(type='mmbixt.Boundary"
        notes.append(element('p', f"{text}IoUMetric') in val_evaluator does so.", class_='note'))
    return join(element('div', *charts, class_='charts'), *notes)


def validation(run: Run, band: str) -> list[Series]:
    """Scores of the images that the model does not learn from, in the course of training."""
    if run.detects:
        return score_lines(run, DETECTION)
    everywhere = score_lines(run, {'mIoU': 'all pixels', 'all/mIoU': 'all pixels'})[:1]
    near = score_lines(run, {f'{band}/mIoU': words(band).lower()})
    return everywhere + [replace(line, style='two') for line in near]


def score_lines(run: Run, names: Mapping[str, str]) -> list[Series]:
    """Lines of the scores that were logged.

    Args:
        run: with records.
        names: what lines are called, by the name of the score.
    """
    found = [(title, points(run, name)) for name, title in names.items()]
    lines = [(title, line) for title, line in found if len(line)]
    return [
        Series(title, line, style, dots=True)
        for (title, line), style in zip(lines, STYLES, strict=False)
    ]


def points(run: Run, name: str) -> np.ndarray:
    """Steps and values (P,2) of what was logged under a name."""
    pairs = [(record['step'], record[name]) for record in run.records if name in record]
    return np.array(pairs, float).reshape(-1, 2)


# --- Scores ----------------------------------------------------------------------------------


def everywhere(material: Material, places: Sequence[Place]) -> Markup:
    """All pixels beside those near boundaries."""
    if not places:
        return join(missing(material.uncounted), final_table(material.run))
    images = len(material.counted.images)
    text = join(
        element('b', 'mIoU'),
        ' is the overlap of prediction and truth, divided by what either covers, in per cent: the '
        'mean over the classes. A ',
        element('b', 'band'),
        ' is the strip along the boundaries between classes of the truth, so many pixels to either '
        'side, or a share of the diagonal of the image. The ',
        element('b', 'gap'),
        ' is how much of the mIoU over all pixels is lost in the band: 25 % means that a quarter '
        'of it is. ',
        element('b', 'Boundary IoU'),
        ' compares only the rims of each class, in the truth and in the prediction.',
    )
    sure = f'{images:,} images; all numbers are per cent.'
    if images > 1:
        sure += (
            f' Small figures: between what scores {LEVEL} % of the draws of as many of these '
            'images, with repetitions, lie (bootstrap).'
        )
    return join(element('p', text), place_table(places), element('p', sure, class_='note'))


def final_table(run: Run) -> Markup | None:
    """Scores that were logged at the end, where no image was counted."""
    found = final_scores(run)
    if not found:
        return None
    rows = (
        element('tr', element('th', name, scope='row'), element('td', f'{value:g}'))
        for name, value in found.items()
    )
    text = element('p', 'What the last evaluation in this folder came to:')
    return join(text, element('div', element('table', element('tbody', *rows)), class_='scroll'))


def of_objects(run: Run) -> Markup:
    """How well objects are found, of all sizes and of some."""
    found = final_scores(run)
    if not found:
        return missing('The run was not evaluated: tools/test.py CONFIG CHECKPOINT does so.')
    text = join(
        element('b', 'mAP'),
        ' is the mean average precision of COCO: the share of found objects that are right, over '
        'all levels of sureness, classes and demands on the overlap (0.5 to 0.95); from 0 to 1.',
    )
    if 'coco/boundary_mAP' not in found:
        text = join(text, ' tools/test.py CONFIG CHECKPOINT --boundary measures edges of masks.')
    return join(element('p', text), detection_table(found, DETECTION))


def by_class(material: Material) -> Markup:
    """A row for each class that occurs."""
    if not material.counted:
        return missing(material.uncounted)
    rows = class_rows(material.counted, material.band)
    if not rows:
        return missing('No class occurs in the test set.')
    known = len(material.counted.classes)
    text = 'IoU of each class in per cent. A click on a heading sorts by it.'
    if len(rows) < known:
        text += (
            f' Of {known} classes {known - len(rows)} are neither in the truth nor in a prediction '
            'and are left out, here as in the mean.'
        )
    if any(not row.images for row in rows):
        text += ' Grey: predicted, but nowhere in the truth.'
    return join(element('p', text), class_table(rows, material.band))


# --- Pictures --------------------------------------------------------------------------------


def pictures(material: Material) -> Markup:
    """The worst and the best images."""
    gallery = material.gallery
    if not gallery:
        return missing(material.undrawn)
    where = words(material.band).lower()
    text = (
        f'The images with the lowest and with the highest mIoU in the {where}, each by itself. The '
        'last panel of a picture shows that band: grey is right, blue is where the boundary was '
        'missed or moved, orange where the class is wrong. A click enlarges a picture.'
    )
    warning = None
    if gallery.strangers:
        warning = element(
            'p',
            f'For {gallery.strangers} of these images the model predicts something else than what '
            'was counted in boundary.npz: that may be of another checkpoint, or of test-time '
            'augmentation. report.py --evaluate counts anew.',
            class_='notice',
        )
    return join(
        element('p', text),
        warning,
        group('Worst', gallery.worst, where),
        group('Best', gallery.best, where),
    )


def group(title: str, exhibits: Sequence[Exhibit], where: str) -> Markup:
    shown = (exhibit_figure(rank, one, where) for rank, one in enumerate(exhibits, 1))
    return join(element('h3', f'{title} images'), element('div', *shown, class_='gallery'))


def exhibit_figure(rank: int, one: Exhibit, where: str) -> Markup:
    scores = f'mIoU {one.score:.1f} % in the {where}, {one.everywhere:.1f} % over all pixels'
    caption = element('figcaption', element('b', f'{rank}. {one.name}'), f' {scores}')
    attention = None
    if one.attention:
        attention = element(
            'details',
            element('summary', 'What the model looks at'),
            image(one.attention, f'Attention of the model in {one.name}'),
            open=rank <= OPEN,
        )
    errors = image(one.errors, f'Image, truth, prediction and errors near boundaries of {one.name}')
    return element('figure', caption, errors, attention, class_='exhibit')


def image(picture: Picture, text: str) -> Markup:
    return element(
        'img',
        src=picture.source,
        alt=text,
        width=picture.width,
        height=picture.height,
        decoding='async',
    )


# --- Configuration ---------------------------------------------------------------------------


def configuration(run: Run) -> Markup:
    """The config of the run, whole."""
    text = 'Everything that was set, as it was written when the run began.'
    code = element('pre', element('code', highlight(run.config.pretty_text)), tabindex=0)
    return join(element('p', text), element('details', element('summary', 'Show it'), code))


def missing(sentence: str) -> Markup:
    """In place of what a section would show."""
    return element('p', sentence, class_='missing')
