"""Write the tables in the READMEs of families and projects from their metafile.yml.

They are between <!-- table: KIND --> and <!-- end of table -->.
"""

import argparse
import shlex
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from mmbixt.checkpoints.sources import BY_ADDRESS
from mmbixt.cli import run
from mmbixt.config import ConfigError

sys.path.append(str(Path(__file__).parents[1] / 'analysis'))
from paper_table import NONE, Notes, families, read_metafile

MARK = '<sup>{}</sup>'  # of a note


def parse_args() -> argparse.Namespace:
    return argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()


def readme_tables(models: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The tables by their kinds; empty if a family has no such models or rows."""
    dense = [model for model in models if model['Metadata']['Training Data'] in ('ADE20K', 'COCO')]
    others = [model for model in models if model not in dense]
    return {
        'dense': table_of_models(dense, side=512, digits=1),
        'classifiers': table_of_models(others, side=224, digits=2),
        'rows': table_of_rows(models),
    }


def table_of_models(models: Sequence[Mapping[str, Any]], side: int, digits: int) -> str:
    """A line for each config, with its results, and those of published weights in other rows."""
    header = ['config', 'parameters', f'G at {side}', 'results', 'published weights']
    rows, notes = [], Notes()
    for model in models:
        about, cells, weights = model['Metadata'], [], [published_name(model)]
        results = [x for x in model.get('Results', []) if not is_ablation(x)]
        for result, values in merged(results):
            row = f'{result["Row"]}: ' if 'Row' in result else ''
            cells.append(f'{row}{values} ({result["Source"]}){notes.mark(result, MARK)}')
            weights.append(file_with_options(result))
        macs = about.get(f'Multiply-adds at {side}x{side} (G)')
        macs = f'{float(macs):.{digits}f}' if macs else NONE
        if at_384 := about.get('Multiply-adds at 384x384 (G)'):
            macs += f'; {at_384} at 384'
        row = [code(model['Name']), f'{int(about["Parameters"]):,}', macs, '; '.join(cells) or NONE]
        rows.append([*row, ', '.join(map(code, dict.fromkeys(filter(None, weights)))) or NONE])
    return markdown(header, rows, notes)


def table_of_rows(models: Sequence[Mapping[str, Any]]) -> str:
    """A line for each row that options make of a config."""
    rows, notes = [], Notes()
    for model in models:
        for result, values in merged(filter(is_ablation, model.get('Results', []))):
            count = result.get('Parameters')
            row = [result.get('Row', NONE), code(model['Name'])]
            row += [f'{int(count):,}' if count else NONE]
            row += [f'{values} ({result["Source"]}){notes.mark(result, MARK)}']
            rows.append([*row, code(shlex.join(shlex.split(result['Options'])))])
    return markdown(['row', 'config', 'parameters', 'result', 'options'], rows, notes)


def is_ablation(result: Mapping[str, Any]) -> bool:
    """Whether it is a row to train with other options."""
    return 'Options' in result and 'Weights' not in result


def published_name(model: Mapping[str, Any]) -> str | None:
    source = BY_ADDRESS.get(model.get('Weights', ''))
    return source and source.name


def file_with_options(result: Mapping[str, Any]) -> str | None:
    """The published file of a result, and the options by which its line's config fits it."""
    name, parts = result.get('Weights'), ('model.backbone.', 'model.neck.', 'model.head.')
    options = [x for x in shlex.split(result.get('Options', '')) if x.startswith(parts)]
    return name and ' --cfg-options '.join([name, shlex.join(options)][: 1 + bool(options)])


def merged(results: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Results, with their metrics as text; those of boxes and masks as one."""
    own = ('Task', 'Dataset', 'Metrics')
    for shared, group in groupby(results, lambda x: {k: x[k] for k in x if k not in own}):
        pairs = [pair for result in group for pair in result['Metrics'].items()]
        yield shared, ', '.join(f'{metric} {value}' for metric, value in pairs)


def code(text: str | None) -> str:
    return f'`{text}`' if text else NONE


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]], notes: Notes) -> str:
    """A table without its empty columns, and the notes below."""
    if not rows:
        return ''
    columns = [column for column in zip(header, *rows, strict=True) if {*column[1:]} != {NONE}]
    header, *rows = zip(*columns, strict=True)
    numbers = {'parameters', 'G at 224', 'G at 512'}
    rule = '|'.join('---:' if title in numbers else '---' for title in header)
    lines = [f'| {" | ".join(row)} |' for row in (header, *rows)]
    notes = [textwrap.fill(line, 112, subsequent_indent='   ') for line in notes.lines('{}. {}')]
    lines = [lines[0], f'|{rule}|', *lines[1:], *([''] if notes else []), *notes]
    return ''.join(f'{line}\n' for line in lines)


def with_tables(folder: Path) -> str:
    """The README of a folder with the tables of its metafile."""
    path = folder / 'README.md'
    text = path.read_text()
    for kind, table in readme_tables(read_metafile(folder)['Models']).items():
        start, end = f'<!-- table: {kind} -->\n', '<!-- end of table -->'
        before, found, rest = text.partition(start)
        if found and end in rest:
            text = f'{before}{start}{table}{rest[rest.index(end) :]}'
        elif table:
            raise ConfigError(f'{path} has no place for a table:\n{start}{end}')
    return text


def main() -> None:
    parse_args()
    for folder in families().values():
        (folder / 'README.md').write_text(with_tables(folder))


if __name__ == '__main__':
    run(main)
