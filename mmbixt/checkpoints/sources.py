"""Weights published by the authors: the names for ``init_cfg`` and ``load_from``, and their URLs.

All URLs are from the authors' pages. Files whose published name contains a hash are compared with
it; other files are accepted as they are downloaded (over https).
"""

import re
from collections.abc import Iterator
from itertools import product
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import urlparse

from mmbixt.checkpoints.errors import CheckpointFileError
from mmbixt.errors import near_matches

# `name-1cdeb081.pth`: torch and OpenMMLab end names with eight digits of the sha256. Decimal digits
# alone may be a date or a number of iterations.
_HASH = re.compile(r'-(?=\d*[a-f])([0-9a-f]{8})(\.[a-z]+)+$')


def hash_in(url: str) -> str:
    """The first digits of the sha256 of a file, from its published name; empty if unknown."""
    name = _HASH.search(url.partition('?')[0])
    return name[1] if name else ''


class Source(NamedTuple):
    """A published file of weights."""

    name: str  # in a config, such as 'xcit://tiny12-p16'
    url: str
    what: str  # data and recipe of its training
    backbone: dict[str, Any]  # config of the backbone with these weights
    decoder: str = ''  # of a whole model
    figure: str = ''  # the authors' result, if known
    is_zip: bool = False  # the download is a zip archive that contains the checkpoint
    note: str = ''  # advice for users, shown with errors

    @property
    def fills(self) -> str:
        """The model with these weights, in words."""
        options = ', '.join(f'{k}={x!r}' for k, x in self.backbone.items() if k != 'type')
        whole = f'{self.decoder} on ' if self.decoder else ''
        return f'{whole}{self.backbone["type"]}: {options}'

    @property
    def file(self) -> str:
        """Its name in the cache: the published name if it has a suffix, else made from ``name``."""
        published = PurePosixPath(urlparse(self.url).path)
        return published.name if published.suffix else self.name.replace('://', '-') + '.pth'


def find(name: str) -> Source:
    """The source of a name."""
    if name not in SOURCES:
        text = f'There are no published weights named {name!r}.{near_matches(name, SOURCES)}'
        raise CheckpointFileError(f'{text} `python tools/list_weights.py` lists all.')
    return SOURCES[name]


_FIGSHARE = 'https://figshare.unimelb.edu.au/ndownloader/files'


class BiXTModel(NamedTuple):
    """A model of BiXT's authors.

    Attributes:
        name: theirs, without 'bixt_'.
        weights: the name here; empty if none are published.
        options: of ``mmbixt.BiXT``. The last layer of a file updates only the latents, which a
            dense model does not read: 12 layers are ``depth=11``.
        params, gmacs: parameters (M) and multiply-adds at 224 x 224 (G), as printed in the paper.
        at_224, at_384: number and top-1 of the file for images of this side.
    """

    name: str
    weights: str
    options: dict[str, Any]
    params: str = ''
    gmacs: str = ''
    at_224: tuple[int, float] | None = None
    at_384: tuple[int, float] | None = None


_D11, _CONV = dict(depth=11), dict(patch_embed='conv')
_L32, _L128 = dict(num_latents=32), dict(num_latents=128)
_S8, _S4 = dict(patch_stride=8), dict(patch_stride=4)
_D256, _D256_LS = dict(arch='d256'), dict(arch='d256-ls')
_ROWS = (
    ('ti_l64_p16', 'tiny-16', _D11, '15.11', '1.68', (52882961, 80.10), (52882964, 81.85)),
    ('ti_l64_p16s8', 'tiny-8', _D11 | _S8, '15.12', '4.71', (52882994, 81.88), (52882988, 82.77)),
    ('ti_l64_p16s4', 'tiny-4', _D11 | _S4, '15.12', '16.81', (52882982, 82.70), (52882970, 83.15)),
    ('ti_l32_p16', '', _D11 | _L32, '15.11', '1.30'),
    ('ti_l128_p16', '', _D11 | _L128, '15.13', '2.47'),
    ('ti_l64_d13_p16', 'tiny-16-d13', {}, '16.38', '1.82', (52882958, 80.44), (52882955, 82.15)),
    ('ti_l64_d13_p16s8', 'tiny-8-d13', _S8, '', '', (52882979, 82.44), (52882973, 83.06)),
    ('ti_l64_d13_p16s4', 'tiny-4-d13', _S4, '', '', (52882967, 83.04)),
    ('ti_cnv_l64_p16', 'tiny-16-conv', _D11 | _CONV, '', '', (52882946, 81.00)),
    ('ti_cnv_l64_d13_p16', 'tiny-16-conv-d13', _CONV, '', '', (52882949, 80.95)),
    ('ti_cnv_l64_d13_p8', 'tiny-8-conv-d13', _S8 | _CONV, '', '', (52882952, 82.47)),
    ('ti_cnv_l64_d13_p4', '', _S4 | _CONV),
    ('ed256_l64_p16', 'd256-16', _D256, '', '', (52882976, 81.74)),
    ('ed256_l64_p16s8', '', _D256 | _S8),
    (
        'ed256LS_l64_p16s8',
        'd256-ls-8',
        _D256_LS | _S8,
        '',
        '',
        (52882991, 83.24),
        (52882985, 83.89),
    ),
)
BIXT = tuple(BiXTModel(*row) for row in _ROWS)

_XCIT_URL = 'https://dl.fbaipublicfiles.com/xcit'
_XCIT_RECIPES = {  # mmbixt's suffix: (text before and after the patch size in the authors', recipe)
    '': ('p', '224', 'ImageNet-1k, 224 px'),
    '-dist': ('p', '224_dist', 'ImageNet-1k, 224 px, distilled'),
    '-384-dist': ('p', '384_dist', 'ImageNet-1k, 384 px, distilled'),
    '-dino': ('cp', 'dino', 'ImageNet-1k without labels, DINO'),
}
_XCIT_TOP1 = {  # with patches of 16, then of 8: (trained, distilled, distilled at 384 pixels)
    'nano12': ((69.9, 72.2, 75.4), (73.8, 76.3, 77.8)),
    'tiny12': ((77.1, 78.6, 80.9), (79.7, 81.2, 82.4)),
    'tiny24': ((79.4, 80.4, 82.6), (81.9, 82.6, 83.7)),
    'small12': ((82.0, 83.3, 84.7), (83.4, 84.2, 85.1)),
    'small24': ((82.6, 83.9, 85.1), (83.9, 84.9, 85.6)),
    'medium24': ((82.7, 84.3, 85.4), (83.7, 85.1, 85.8)),
    'large24': ((82.9, 84.9, 85.8), (84.4, 85.4, 86.0)),
}
_AP = 'box AP {2}, mask AP {3}'
_XCIT_WHOLE = {  # mmbixt's name: (part of the URL, what it is, decoder, format of the figures)
    'ade-semfpn': ('ade/sem_fpn', 'ADE20K, whole segmentor', 'SemanticFPN', 'mIoU {0}'),
    'ade-upernet': ('ade/upernet', 'ADE20K, whole segmentor', 'UPerNet', 'mIoU {1}'),
    'coco-maskrcnn': ('coco/maskrcnn', 'COCO, whole detector', 'Mask R-CNN', _AP),
}
# mIoU of SemanticFPN, mIoU of UPerNet, box AP and mask AP of Mask R-CNN
_XCIT_DENSE = {
    ('tiny12', 16): (38.1, 41.5, 42.7, 38.5),
    ('tiny12', 8): (39.9, 43.5, 44.5, 40.3),
    ('small12', 16): (43.9, 45.9, 45.3, 40.8),
    ('small12', 8): (44.2, 46.6, 47.0, 42.3),
    ('small24', 16): (44.6, 46.9, 46.5, 41.8),
    ('small24', 8): (47.1, 48.1, 48.1, 43.0),
    ('medium24', 16): (45.9, 47.6, 46.7, 42.0),
    ('medium24', 8): (46.9, 48.4, 48.5, 43.7),
}

_ONEDRIVE = 'https://api.onedrive.com/v1.0/shares'
_BIFORMER = {
    'tiny': 's!AkBbczdRlZvChHEOoGkgwgQzEDlM',
    'small': 's!AkBbczdRlZvChHDyM-x9KWRBZ832',
    'base': 's!AkBbczdRlZvChHI_XPhoadjaNxtO',
    'stl': 's!AkBbczdRlZvChSf-m7ujkvx9lIQ1',
    'stl-nchw': 's!AkBbczdRlZvChWYrKbWbMgqd2Ai0',
}
_BIFORMER_NOTE = (
    "The BiFormer authors' links are reported broken since March 2026, and no other source is "
    'known. Without the file train from random weights: init_cfg=None.'
)

_SWIN_URL = 'https://github.com/SwinTransformer/storage/releases/download/v1.0.0'
_SWIN_MM_URL = 'https://download.openmmlab.com/mmsegmentation/v0.5/pretrain/swin'
_SWIN = {
    'tiny': f'{_SWIN_URL}/swin_tiny_patch4_window7_224.pth',
    'small': f'{_SWIN_URL}/swin_small_patch4_window7_224.pth',
    'mm-tiny': f'{_SWIN_MM_URL}/swin_tiny_patch4_window7_224_20220317-1cdeb081.pth',
    'mm-small': f'{_SWIN_MM_URL}/swin_small_patch4_window7_224_20220317-7ba6d6dd.pth',
    'mm-base': f'{_SWIN_MM_URL}/swin_base_patch4_window7_224_20220317-e9b98025.pth',
}
_SWIN['base'] = _SWIN['mm-base']  # this size is published in mm's layout only


def _bixt() -> Iterator[Source]:
    for model in BIXT:
        backbone = dict(type='mmbixt.BiXT', arch='tiny') | model.options
        for file, side, suffix in ((model.at_224, 224, ''), (model.at_384, 384, '-384')):
            if file is None:
                continue
            name, what = f'bixt://{model.weights}{suffix}', f'ImageNet-1k, {side} px'
            url, figure = f'{_FIGSHARE}/{file[0]}', f'top-1 {file[1]:.2f}'
            yield Source(name, url, what, backbone, figure=figure, is_zip=True)


def _xcit() -> Iterator[Source]:
    for (arch, top1), (column, patch) in product(_XCIT_TOP1.items(), enumerate((16, 8))):
        figures = dict(zip(('', '-dist', '-384-dist'), top1[column], strict=True))
        for recipe, (before, after, what) in _XCIT_RECIPES.items():
            if recipe == '-dino' and arch not in ('small12', 'medium24'):
                continue
            name, (official, backbone) = f'xcit://{arch}-p{patch}{recipe}', _xcit_names(arch, patch)
            url = f'{_XCIT_URL}/{official}_{before}{patch}_{after}.pth'
            figure = f'top-1 {figures[recipe]}' if recipe in figures else ''
            yield Source(name, url, what, backbone, figure=figure)


def _xcit_whole() -> Iterator[Source]:
    """Whole models, trained by the XCiT authors with mmseg 0.11 and mmdet 2."""
    for kind, (address, what, decoder, figure) in _XCIT_WHOLE.items():
        for (arch, patch), figures in _XCIT_DENSE.items():
            official, backbone = _xcit_names(arch, patch)
            url = f'{_XCIT_URL}/{address}_{official}_p{patch}.pth'
            name = f'xcit://{kind}-{arch}-p{patch}'
            yield Source(name, url, what, backbone, decoder, figure.format(*figures))


def _xcit_names(arch: str, patch: int) -> tuple[str, dict[str, Any]]:
    """The authors' name of an architecture in file names, and the backbone."""
    backbone = dict(type='mmbixt.XCiT', arch=arch, patch_size=patch)
    return f'xcit_{arch[:-2]}_{arch[-2:]}', backbone


def _biformer() -> Iterator[Source]:
    for arch, share in _BIFORMER.items():
        url, backbone = f'{_ONEDRIVE}/{share}/root/content', dict(type='mmbixt.BiFormer', arch=arch)
        yield Source(f'biformer://{arch}', url, 'ImageNet-1k', backbone, note=_BIFORMER_NOTE)


def _swin() -> Iterator[Source]:
    for name, url in _SWIN.items():
        layout = ", in OpenMMLab's layout" if url.startswith(_SWIN_MM_URL) else ''
        arch = name.removeprefix('mm-')
        backbone = dict(type='mmbixt.BiSASwin', arch=arch, bisa_stages=())
        yield Source(f'swin://{name}', url, f'ImageNet-1k, 224 px{layout}', backbone)


_ALL = (_bixt(), _xcit(), _xcit_whole(), _biformer(), _swin())
SOURCES = {source.name: source for sources in _ALL for source in sources}
BY_ADDRESS = {source.url: source for source in SOURCES.values()}
SCHEMES = tuple(dict.fromkeys(name.split('://')[0] + '://' for name in SOURCES))
