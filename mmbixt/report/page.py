"""The HTML page of a report, from templates."""

from math import isnan

from jinja2 import Environment, PackageLoader, StrictUndefined
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from mmbixt.evaluation.bootstrap import LEVEL, Estimate, score_regions
from mmbixt.evaluation.boundary import MAIN_BAND
from mmbixt.report.curves import draw, training_charts
from mmbixt.report.data import ReportData
from mmbixt.report.scores import class_rows, describe
from mmbixt.report.work_dir import DETECTION

DETAILS = '', '_50', '_75', '_s', '_m', '_l'  # ends of the names of mmdet's scores


def make_page(data: ReportData) -> str:
    """The HTML page."""
    loader = PackageLoader('mmbixt.report')
    pages = Environment(loader=loader, trim_blocks=True, autoescape=True, undefined=StrictUndefined)
    pages.filters.update(cell=cell, describe=describe, draw=draw)
    run, counts, band = data.run, data.counts, data.band
    regions = score_regions(counts) if counts else {}
    rows = class_rows(counts, regions, band) if counts else []
    return pages.get_template('page.html').render(
        vars(data),
        facts=facts(data),
        regions=regions,
        level=LEVEL,
        classes=rows,
        zeros=[row[:3] for row in rows if not row[3]],  # the IoU; only predicted ones are last
        areas=[[describe(name), x.share, x.mean, x.accuracy, x.gap] for name, x in regions.items()],
        logged=run.scores.get('mIoU', run.scores.get('all/mIoU')),
        where=describe(band).lower() if band else '',
        charts=training_charts(run, band or MAIN_BAND),
        detection=DETECTION,
        detections=[
            [kind.capitalize(), *(run.scores.get(name + end) for end in DETAILS)]
            for name, kind in DETECTION.items()
            if name in run.scores
        ],
        code=highlight(run.config.pretty_text, PythonLexer(), HtmlFormatter()),
    )


def facts(data: ReportData) -> list[str | None]:
    """Short descriptions of the run; None for unknown ones."""
    run, model = data.run, data.run.config.model
    head = model.get('decode_head') or model.get('roi_head') or model.get('bbox_head')
    parts = dict(model=model, backbone=model.get('backbone'), head=head)
    parts['data set'] = run.test_set
    kinds = [(name, part[-1] if isinstance(part, list) else part) for name, part in parts.items()]
    return [
        *[f'{name} {part["type"]}' for name, part in kinds if part and 'type' in part],
        'generated scenes' if run.generated else run.test_set.get('data_root'),
        f'{len(data.counts.images):,} test images' if data.counts else None,
        f'logged until iteration {run.iterations:,}' if run.iterations else None,
        f'{data.parameters / 1e6:.1f} million parameters' if data.parameters else None,
        f'weights of {data.weights}' if data.weights else None,
        f'{run.date.day} {run.date:%B %Y}' if run.date else None,
    ]


def cell(score: float | Estimate | None, digits: int = 1) -> tuple[str, float | str, str]:
    """A score as text, the value by which it is sorted (or ''), and its interval (or '')."""
    value, interval = score, ''
    if isinstance(score, Estimate):
        value = float(score.value)
        if len(score.draws) > 1:
            interval = '{:.1f} to {:.1f}'.format(*score.interval())
    if value in (None, -1) or isnan(value):  # -1 is mmdet's score without objects
        return '–', '', ''
    text = f'{value:,}' if isinstance(value, int) else f'{value:.{digits}f}'.replace('-', '−')
    return '< 0.1' if 0 < value < 0.05 and digits == 1 else text, round(value, 4), interval
