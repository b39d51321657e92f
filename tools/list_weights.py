"""List the published weights, and which of them are downloaded; or check each of them.

The names are for init_cfg=dict(type='Pretrained', checkpoint=NAME), names of whole models for
tools/test.py and load_from. In addition, timm://NAME loads weights of timm.list_pretrained().

--check downloads each file, compares its hash where one is published, loads all of its weights into
its model and runs one image. It ends with 1 if a file fails.
"""

import argparse
import sys
import textwrap
from collections.abc import Mapping
from fnmatch import fnmatch
from hashlib import file_digest
from pathlib import Path
from platform import python_version
from typing import Any

import torch

from mmbixt import __version__
from mmbixt.checkpoints.download import cache_folder
from mmbixt.checkpoints.loader import find_file, load
from mmbixt.checkpoints.sources import SOURCES, Source, hash_in
from mmbixt.errors import near_matches

LICENCES = (
    'The files have the licences of their authors; docs/which.md lists what is known. mmbixt '
    'grants no licence.'
)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    text = "a part of the names, such as xcit or d13, or a pattern, such as 'xcit://*-p8-dist'; "
    text += 'a single match is shown with all details (default: all)'
    add('pattern', nargs='?', default='', metavar='FAMILY|PATTERN', help=text)
    add('--check', action='store_true', help='download, load and run each file')
    add('--table', type=Path, metavar='FILE', help='also write what --check found')
    args = parser.parse_args()
    if args.table and not args.check:
        parser.error('--table FILE needs --check')
    return args


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
    rows = [('name', 'options', 'trained on', 'published', 'here')]
    rows += [(s.name, s.options_text, s.what, s.figure, size_here(s)) for s in sources]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ['  '.join(map(str.ljust, row, widths)).rstrip() for row in rows]
    lines.insert(1, '-' * max(map(len, lines)))
    return '\n'.join(lines)


def details(source: Source) -> str:
    facts = {
        'fills': source.model_text,
        'from': source.url + (' (a zip archive)' if source.is_zip else ''),
        'kept as': cache_folder() / source.file,
        'sha256': hash_in(source.url) and f'{hash_in(source.url)}...',
        'note': source.note,
    }
    return '\n'.join(f'{label:>9}: {fact}' for label, fact in facts.items() if fact)


def check(source: Source) -> tuple[str, str, str]:
    """The size and the sha256 of a file, and the output of its model for one image."""
    path = find_file(source.name)
    with path.open('rb') as file:
        digest = file_digest(file, 'sha256').hexdigest()
    output = (run_whole if source.decoder else run_classifier)(source, load(source.name, 'cpu'))
    if not output.isfinite().all():
        raise ValueError('the output is not finite')
    return size_here(source), digest, f'loads; {tuple(output.shape)} for one image'


def run_classifier(source: Source, state: Mapping[str, Any]) -> torch.Tensor:
    """Logits; or the pooled vector, if the file has no classes."""
    from mmbixt import backbones
    from mmbixt.timm.classifier import checkpoint_filter_fn, classifier_of

    model = classifier_of(getattr(backbones, source.family))(**source.options).eval()
    weights = checkpoint_filter_fn(state, model)
    if not any(key.startswith('head.') for key in weights):
        model.reset_classifier(0)
    model.load_state_dict(weights, strict=False)  # it raises an error if a weight is missing
    with torch.no_grad():
        return model(torch.rand(1, 3, 224, 224))


def run_whole(source: Source, state: Mapping[str, Any]) -> torch.Tensor:
    """Logits of a segmentor, or scores of a detector, for an image of 224 x 224."""
    from mmengine.config import Config
    from mmengine.registry import MODELS, init_default_scope

    from mmbixt.backbones.weights import load_whole_state
    from mmbixt.config import config_files

    decoder, arch, patch = source.name.rsplit('-', 3)[-3:]
    family = dict(semfpn='ade20k', upernet='ade20k', maskrcnn='3x_coco')[decoder]
    short = arch[0] + arch[-2:]
    cfg = Config.fromfile(config_files()[f'{decoder}_xcit_{short}_{patch}_{family}'])
    init_default_scope(cfg.default_scope)
    model = MODELS.build(cfg.model).eval()
    load_whole_state(model, state)
    about = dict(img_shape=(224, 224), ori_shape=(224, 224), scale_factor=(1.0, 1.0))
    picture = torch.randint(256, (3, 224, 224), dtype=torch.uint8)
    if decoder == 'maskrcnn':
        from mmdet.structures import DetDataSample as DataSample
    else:
        from mmseg.structures import SegDataSample as DataSample
    sample = DataSample(metainfo=about)
    (result,) = model.test_step(dict(inputs=[picture], data_samples=[sample]))
    return result.seg_logits.data if decoder != 'maskrcnn' else result.pred_instances.scores


def check_all(sources: list[Source], file: Path | None) -> bool:
    """Print a Markdown table of all checks, and write it to a file; whether all succeeded."""
    lines, failed = ['| name | size | sha256 | result |', '|---|---|---|---|'], 0
    print(*lines, sep='\n')
    for source in sources:
        try:
            found = check(source)
        except Exception as error:  # of one file: the others are checked nevertheless
            failed += 1
            found = size_here(source), '', f'FAILED: {type(error).__name__}: {error}'
        row = (' '.join(text.split()) for text in (source.name, *found))
        lines.append(f'| {" | ".join(row)} |')
        print(lines[-1], flush=True)
    versions = f'mmbixt {__version__}, torch {torch.__version__}, Python {python_version()}'
    count = f'{len(sources) - failed} of {len(sources)} files load into their models ({versions}).'
    print('', count, sep='\n')
    if file:
        file.write_text('\n'.join([count, '', *lines, '']))
    return not failed


def main() -> None:
    args = parse_args()
    pattern = args.pattern
    sources = matching(pattern)
    if not sources:
        sys.exit(f'error: no name matches {pattern!r}.{near_matches(pattern, SOURCES)}')
    if args.check:
        sys.exit(not check_all(sources, args.table))
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
