"""List the published weights, and which of them are downloaded.

The names are for init_cfg=dict(type='Pretrained', checkpoint=NAME), names of whole models for
tools/test.py and load_from. In addition, timm://NAME loads weights of timm.list_pretrained().
"""

import argparse
import sys
import textwrap
from fnmatch import fnmatch

from mmbixt.checkpoints.download import cache_folder
from mmbixt.checkpoints.sources import SOURCES, Source, hash_in, near_matches

LICENCES = (
    'The files have the licences of their authors; docs/checkpoints.md lists what is known. mmbixt '
    'grants no licence.'
)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        'pattern',
        nargs='?',
        default='',
        metavar='FAMILY|PATTERN',
        help="a part of the names, such as xcit or d13, or a pattern, such as 'xcit://*-p8-dist'; "
        'a single match is shown with all details (default: all)',
    )
    return parser.parse_args()


def matching(pattern: str) -> list[Source]:
    if pattern in SOURCES:
        return [SOURCES[pattern]]
    return [
        source
        for name, source in SOURCES.items()
        if pattern.lower() in name or fnmatch(name, pattern.lower())
    ]


def size_here(source: Source) -> str:
    """The size of the file in the cache; empty if it is not downloaded."""
    path = cache_folder() / source.file
    return f'{path.stat().st_size / 1e6:.1f} MB' if path.is_file() else ''


def table(sources: list[Source]) -> str:
    rows = [('name', 'trained on', 'published', 'here')]
    rows += [(s.name, s.what, s.figure, size_here(s)) for s in sources]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ['  '.join(map(str.ljust, row, widths)).rstrip() for row in rows]
    lines.insert(1, '-' * max(map(len, lines)))
    return '\n'.join(lines)


def details(source: Source) -> str:
    facts = {
        'fills': source.fills,
        'from': source.url + (' (a zip archive)' if source.is_zip else ''),
        'kept as': cache_folder() / source.file,
        'sha256': hash_in(source.url) and f'{hash_in(source.url)}...',
        'note': source.note,
    }
    return '\n'.join(f'{label:>9}: {fact}' for label, fact in facts.items() if fact)


def hint(pattern: str) -> str:
    """A suggestion for a pattern that matches nothing."""
    if pattern.startswith('timm://'):
        return " For timm's names use timm.list_pretrained('xcit*')."
    return near_matches(pattern, SOURCES)


def main() -> None:
    pattern = parse_args().pattern
    sources = matching(pattern)
    if not sources:
        sys.exit(f'error: no name matches {pattern!r}.{hint(pattern)}')
    print(table(sources))
    if len(sources) == 1:
        print(details(sources[0]))
        notes = [LICENCES]
    else:
        notes = [*dict.fromkeys(source.note for source in sources if source.note), LICENCES]
        notes.append(
            f'The cache is {cache_folder()}; to change it, set the variable TORCH_HOME. Give a '
            'full name to see its model and its URL.'
        )
    print('', *(textwrap.fill(note, 100) for note in notes), sep='\n')


if __name__ == '__main__':
    main()
