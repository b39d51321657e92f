"""Convert a checkpoint of the authors, of timm or of Microsoft to mmbixt's layout.

This is optional: mmbixt also reads the original files. The tool is for other programs, and shows
the content of a file. Files are recognised by their weights; unknown files are an error.
"""

import argparse
import os
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

import torch
from torch import Tensor

from mmbixt.backbones.published import PUBLISHED
from mmbixt.backbones.recognise import fit, identify, list_models, nearest, recognise
from mmbixt.checkpoints.describe import describe
from mmbixt.checkpoints.errors import CheckpointFileError
from mmbixt.checkpoints.loader import TRUST, load_from_timm, read_source
from mmbixt.checkpoints.origin import file_of, remember
from mmbixt.checkpoints.prefixes import advise, candidates, without
from mmbixt.checkpoints.state_dict import (
    CheckpointMismatchError,
    Conversion,
    compare,
    refuse,
    shorten,
    unwrap,
)
from mmbixt.checkpoints.xcit import convert_whole_xcit
from mmbixt.cli import run
from mmbixt.files import written_whole
from mmbixt.necks import FeaturePyramidAdapter
from mmbixt.version import __version__

BY_NAME = {model.name: model for model in PUBLISHED}
WRITTEN = 'Nothing was written.'


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog='Example: python tools/convert_checkpoint.py xcit_tiny_12_p16_224.pth tiny12.pth',
    )
    parser.add_argument('source', metavar='IN', help='a file, or a name such as xcit://tiny12-p16')
    parser.add_argument('target', metavar='OUT', type=Path, help='file to write')
    parser.add_argument(
        '--arch',
        metavar='NAME',
        choices=list(BY_NAME),
        help='the model of the file, for example xcit_tiny_12_p16 (default: recognised by its '
        'weights)',
    )
    parser.add_argument('--overwrite', action='store_true', help='replace OUT if it exists')
    parser.add_argument(
        '--trust-checkpoint',
        action='store_true',
        help='also read files that contain more than data; their code is executed',
    )
    parser.add_argument('--verbose', action='store_true', help='list all weights')
    args = parser.parse_args()
    if args.trust_checkpoint:
        os.environ[TRUST] = '1'
    if args.target.is_dir():
        parser.error(f'{args.target} is a folder; OUT must be a file.')
    if args.target.exists() and not args.overwrite:
        parser.error(f'{args.target} exists; --overwrite replaces it.')
    return args


def read(source: str) -> dict[str, Tensor]:
    """The weights by their names in the file."""
    if source.startswith('timm://'):
        loaded = load_from_timm(source, 'cpu')
    else:
        loaded = read_source(source, 'cpu')
    state = unwrap(loaded) if isinstance(loaded, Mapping) else {}
    if not state:
        what = f'a {type(loaded).__name__}'
        if isinstance(loaded, Mapping):
            what = f'a dict of {shorten(map(repr, loaded)) or "nothing"}'
        raise CheckpointFileError(f'{source} contains {what}, but no weights by their names.')
    remember(state, source)
    return state


def convert(state: dict, arch: str | None) -> tuple[str, Conversion, list[str]]:
    """Description of the model, converted weights, and weights of the model that are missing."""
    converted = convert_whole_xcit(state)
    if converted is None:
        return convert_backbone(state, arch)
    # of a whole model, backbone and pyramid are checked
    backbone = without('backbone.', state)
    model = convert_backbone(backbone, arch)[0]
    pyramid = {key: v for key, v in backbone.items() if key.startswith('fpn')}
    stride = 16 if 'fpn2.0.weight' in pyramid else 8  # patch size 8 has fewer upsamplings
    adapter = FeaturePyramidAdapter(len(pyramid['fpn1.0.bias']), stride)
    differences = compare(Conversion(pyramid), adapter.state_dict(), r'num_batches_tracked$')
    if differences:
        seems = f'seems to be {describe(state)}'
        refuse(differences, 'the pyramid', file_of(state), seems, WRITTEN)
    return f'a whole model of the XCiT authors, {model}', converted, []


def convert_backbone(state: dict, arch: str | None) -> tuple[str, Conversion, list[str]]:
    """As :func:`convert`, for a backbone or a classifier."""
    fits = [fit(state, BY_NAME[arch])] if arch else recognise(state)
    if not fits or fits[0].differences:
        refuse_part(state)
    if not fits and (near := nearest(state)):
        what = 'is nearly this model; it may be damaged or changed'
        refuse(near.differences, near.model.name, file_of(state), what, WRITTEN)
    if not fits:
        raise CheckpointMismatchError(
            f'None of the {len(PUBLISHED)} published models has the weights of {file_of(state)}; '
            f'the file {identify(state)}. --arch NAME shows the differences to a model. {WRITTEN}'
        )
    first = fits[0]
    if first.differences:
        refuse(first.differences, arch, file_of(state), identify(state), WRITTEN)
    return list_models(fits), first.converted, first.differences.optional


def refuse_part(state: dict) -> None:
    """Raise an error about a larger model, of which a part is a published one."""
    file = file_of(state)
    for prefix in candidates(state):
        if fits := recognise(without(prefix, state)):
            raise CheckpointMismatchError(
                f'What begins with {prefix!r} in {file} is {list_models(fits)}. It needs no '
                f'conversion: {advise(file, [prefix])}. {WRITTEN}'
            )


def report(converted: Conversion, missing: list[str], verbose: bool) -> None:
    most = None if verbose else 5
    same = [ours for ours, theirs in converted.origins.items() if ours == theirs]
    renamed = [f'{old} -> {new}' for new, old in converted.origins.items() if new != old]
    missing = [key for key in missing if not key.endswith('num_batches_tracked')]
    rows = dict(unchanged=same, renamed=renamed, dropped=converted.dropped, missing=missing)
    for title, names in rows.items():
        print(f'{title:<10}{len(names)}{": " + shorten(names, most) if names else ""}')
    if missing:
        print('          (a model initialises missing weights)')


def save(converted: Conversion, source: str, what: str, target: Path) -> None:
    """Write a file; an interrupted write leaves no file of this name."""
    meta = dict(mmbixt_version=__version__, source=source, model=what)
    content = BytesIO()  # errors of torch.save do not say that a disk is full
    torch.save(dict(meta=meta, state_dict=converted.weights), content)
    with written_whole(target) as part:
        part.write_bytes(content.getbuffer())


def main() -> None:
    args = parse_args()
    state = read(args.source)
    what, converted, missing = convert(state, args.arch)
    print(f'{args.source} is {what}')
    report(converted, missing, args.verbose)
    save(converted, args.source, what, args.target)
    print(f'written   {args.target} ({args.target.stat().st_size / 1e6:.1f} MB)')


if __name__ == '__main__':
    run(main)
