"""The models that the authors publish, each with its files of weights.

``init_cfg`` and ``load_from`` accept the names of the files. URLs are from the authors' pages. A
file whose published name contains a hash is compared with it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
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


class WithBackbone:
    """What follows from the config of a backbone."""

    backbone: dict[str, Any]

    @property
    def family(self) -> str:
        return self.backbone['type'].removeprefix('mmbixt.')

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of the backbone's class."""
        return {key: value for key, value in self.backbone.items() if key != 'type'}

    @property
    def options_text(self) -> str:
        return ', '.join(f'{key}={value!r}' for key, value in self.options.items())


@dataclass(frozen=True)
class Source(WithBackbone):
    """A published file of weights."""

    name: str  # in a config, such as 'xcit://tiny12-p16'
    url: str
    what: str  # data and recipe of its training
    backbone: dict[str, Any]  # config of the backbone with these weights
    decoder: str = ''  # of a whole model
    figure: str = ''  # the authors' result, if known
    is_zip: bool = False  # the download is a zip archive that contains the checkpoint
    note: str = ''  # advice for users, shown with errors
    tag: str = ''  # timm's, of a classifier; it names the side of its images if that is 384

    @property
    def model_text(self) -> str:
        """The model with these weights, in words."""
        whole = f'{self.decoder} on ' if self.decoder else ''
        return f'{whole}{self.backbone["type"]}: {self.options_text}'

    @property
    def file(self) -> str:
        """Its name in the cache: the published name if it has a suffix, else made from ``name``."""
        published = PurePosixPath(urlparse(self.url).path)
        return published.name if published.suffix else self.name.replace('://', '-') + '.pth'


@dataclass(frozen=True, eq=False)
class Published(WithBackbone):
    """A classification model of the authors, and the dense backbone with its weights."""

    name: str  # that the authors use
    backbone: dict[str, Any]  # config of the dense backbone
    params: str = ''  # millions of the classifier, as printed in the paper; empty if not
    gmacs: str = ''  # billions of multiply-adds of the classifier at 224 x 224, as printed
    files: tuple[Source, ...] = ()  # of weights, also of whole models with this backbone
    at_512: tuple[tuple[str, Any], ...] = ()  # entries of the config that differ at 512 x 512
    timm_has_it: bool = False  # under another name


def find(name: str) -> Source:
    """The source of a name."""
    if name not in SOURCES:
        text = f'There are no published weights named {name!r}.{near_matches(name, SOURCES)}'
        raise CheckpointFileError(f'{text} `python tools/list_weights.py` lists all.')
    return SOURCES[name]


# --- BiXT -----------------------------------------------------------------------------------------

_FIGSHARE = 'https://figshare.unimelb.edu.au/ndownloader/files'


def _bixt(
    name: str, weights: str, options: dict, params: str = '', gmacs: str = '', *files: tuple
) -> Published:
    """A model of the table below.

    ``files`` are pairs (number in the URL, top-1): of the file for 224 pixels, then for 384 pixels.
    ``weights`` is the name of the files in mmbixt, empty if none are published. The last layer of a
    file updates only the latents, which a dense model does not read: a file of 12 layers fits
    ``depth=11``.
    """
    backbone = dict(type='mmbixt.BiXT', arch='tiny') | options
    recipes = (('', '224 px', 'in1k'), ('-384', '384 px', 'in1k_384'))
    sources = tuple(
        Source(
            f'bixt://{weights}{suffix}',
            f'{_FIGSHARE}/{number}',
            f'ImageNet-1k, {side}',
            backbone,
            figure=f'top-1 {top1:.2f}',
            is_zip=True,
            tag=tag,
        )
        for (number, top1), (suffix, side, tag) in zip(files, recipes, strict=False)
    )
    return Published(f'bixt_{name}', backbone, params, gmacs, sources)


_D11, _CONV = dict(depth=11), dict(patch_embed='conv')
_L32, _L128 = dict(num_latents=32), dict(num_latents=128)
_S8, _S4 = dict(patch_stride=8), dict(patch_stride=4)
_D256, _D256_LS8 = dict(arch='d256'), dict(arch='d256-ls', patch_stride=8)
_BIXT = (
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
    ('ed256LS_l64_p16s8', 'd256-ls-8', _D256_LS8, '', '', (52882991, 83.24), (52882985, 83.89)),
)

# --- XCiT -----------------------------------------------------------------------------------------

_XCIT_URL = 'https://dl.fbaipublicfiles.com/xcit'
_XCIT_RECIPES = (  # suffix here, (text before and after the authors' patch size), recipe, tag
    ('', ('p', '224'), 'ImageNet-1k, 224 px', 'in1k'),
    ('-dist', ('p', '224_dist'), 'ImageNet-1k, 224 px, distilled', 'dist_in1k'),
    ('-384-dist', ('p', '384_dist'), 'ImageNet-1k, 384 px, distilled', 'dist_in1k_384'),
    ('-dino', ('cp', 'dino'), 'ImageNet-1k without labels, DINO', ''),
)
_XCIT_WHOLE = (  # by mmseg 0.11 and mmdet 2: part of the URL, what it is, decoder, figures
    ('ade/sem_fpn', 'ADE20K, whole segmentor', 'SemanticFPN', 'mIoU {0}'),
    ('ade/upernet', 'ADE20K, whole segmentor', 'UPerNet', 'mIoU {1}'),
    ('coco/maskrcnn', 'COCO, whole detector', 'Mask R-CNN', 'box AP {2}, mask AP {3}'),
)


def _xcit(
    size: str, depth: int, patch: int, params: str, gmacs: str, top1: tuple, dense: tuple = ()
) -> Published:
    """A row of the table below.

    ``top1`` is that of the models trained, distilled, and distilled at 384 pixels; ``dense`` the
    mIoU of SemanticFPN, the mIoU of UPerNet, and the box AP and mask AP of Mask R-CNN.
    """
    name, arch = f'xcit_{size}_{depth}', f'{size}{depth}'
    backbone = dict(type='mmbixt.XCiT', arch=arch, patch_size=patch)

    def files() -> Iterator[Source]:
        figures = [f'top-1 {x}' for x in top1]
        if arch in ('small12', 'medium24'):
            figures.append('')  # of DINO
        for figure, recipe in zip(figures, _XCIT_RECIPES, strict=False):
            suffix, (before, after), what, tag = recipe
            url = f'{_XCIT_URL}/{name}_{before}{patch}_{after}.pth'
            at = f'xcit://{arch}-p{patch}{suffix}'
            yield Source(at, url, what, backbone, figure=figure, tag=tag)
        for address, what, decoder, figure in _XCIT_WHOLE if dense else ():
            url = f'{_XCIT_URL}/{address}_{name}_p{patch}.pth'
            at = f'xcit://{address.replace("/", "-").replace("_", "")}-{arch}-p{patch}'
            yield Source(at, url, what, backbone, decoder, figure.format(*dense))

    return Published(f'{name}_p{patch}', backbone, params, gmacs, tuple(files()), timm_has_it=True)


_XCIT = (
    ('nano', 12, 16, '3', '0.5', (69.9, 72.2, 75.4)),
    ('nano', 12, 8, '3', '2.1', (73.8, 76.3, 77.8)),
    ('tiny', 12, 16, '7', '1.2', (77.1, 78.6, 80.9), (38.1, 41.5, 42.7, 38.5)),
    ('tiny', 12, 8, '7', '4.8', (79.7, 81.2, 82.4), (39.9, 43.5, 44.5, 40.3)),
    ('tiny', 24, 16, '12', '2.3', (79.4, 80.4, 82.6)),
    ('tiny', 24, 8, '12', '9.2', (81.9, 82.6, 83.7)),
    ('small', 12, 16, '26', '4.8', (82.0, 83.3, 84.7), (43.9, 45.9, 45.3, 40.8)),
    ('small', 12, 8, '26', '18.9', (83.4, 84.2, 85.1), (44.2, 46.6, 47.0, 42.3)),
    ('small', 24, 16, '48', '9.1', (82.6, 83.9, 85.1), (44.6, 46.9, 46.5, 41.8)),
    ('small', 24, 8, '48', '36.0', (83.9, 84.9, 85.6), (47.1, 48.1, 48.1, 43.0)),
    ('medium', 24, 16, '84', '16.2', (82.7, 84.3, 85.4), (45.9, 47.6, 46.7, 42.0)),
    ('medium', 24, 8, '84', '63.9', (83.7, 85.1, 85.8), (46.9, 48.4, 48.5, 43.7)),
    ('large', 24, 16, '189', '36.1', (82.9, 84.9, 85.8)),
    ('large', 24, 8, '189', '142.2', (84.4, 85.4, 86.0)),
)

# --- BiFormer -------------------------------------------------------------------------------------

_ONEDRIVE = 'https://api.onedrive.com/v1.0/shares'
_BIFORMER_NOTE = (
    "The BiFormer authors' links are reported broken since March 2026, and no other source is "
    'known. Without the file train from random weights: init_cfg=None.'
)


def _biformer(arch: str, params: str, gmacs: str, share: str) -> Published:
    backbone, name = dict(type='mmbixt.BiFormer', arch=arch), f'biformer_{arch.replace("-", "_")}'
    url = f'{_ONEDRIVE}/{share}/root/content'
    file = Source(f'biformer://{arch}', url, 'ImageNet-1k', backbone, note=_BIFORMER_NOTE)
    at_224, at_512 = dict(backbone, num_regions=7), (('num_regions', 8),)
    return Published(name, at_224, params, gmacs, (file,), at_512)


_BIFORMER = (
    ('tiny', '13.1', '2.2', 's!AkBbczdRlZvChHEOoGkgwgQzEDlM'),
    ('small', '25.5', '4.5', 's!AkBbczdRlZvChHDyM-x9KWRBZ832'),
    ('base', '56.8', '9.8', 's!AkBbczdRlZvChHI_XPhoadjaNxtO'),
    ('stl', '28.4', '4.6', 's!AkBbczdRlZvChSf-m7ujkvx9lIQ1'),
)

# --- Swin and BiSA-Swin ---------------------------------------------------------------------------

_SWIN_URL = 'https://github.com/SwinTransformer/storage/releases/download/v1.0.0'
_MM_URL = 'https://download.openmmlab.com/mmsegmentation/v0.5/pretrain/swin'


def _swin(arch: str, params: str, gmacs: str, digits: str) -> Published:
    """``digits`` are in the name of OpenMMLab's file; 'base' is published in its layout only."""
    backbone = dict(type='mmbixt.BiSASwin', arch=arch, bisa_stages=())
    file, what = f'swin_{arch}_patch4_window7_224', 'ImageNet-1k, 224 px'
    in_mm = f'{_MM_URL}/{file}_20220317-{digits}.pth', f"{what}, in OpenMMLab's layout", backbone
    first = (f'{_SWIN_URL}/{file}.pth', what, backbone) if arch != 'base' else in_mm
    files = Source(f'swin://mm-{arch}', *in_mm), Source(f'swin://{arch}', *first)
    return Published(f'swin_{arch}', backbone, params, gmacs, files, timm_has_it=True)


_SWIN = (
    ('tiny', '28.3', '4.5', '1cdeb081'),
    ('small', '50', '8.7', '7ba6d6dd'),
    ('base', '88', '15.4', 'e9b98025'),
)
_BISA = dict(type='mmbixt.BiSASwin', arch='tiny', bisa_stages=(0,))
_ADDITIVE = dict(projection='additive', lam='learned')  # of the authors' code

PUBLISHED = (
    *(_bixt(*row) for row in _BIXT),
    *(_xcit(*row) for row in _XCIT),
    *(_biformer(*row) for row in _BIFORMER),
    *(_swin(*row) for row in _SWIN),
    Published('bisa_swin_tiny', _BISA, '28.4', '5.3'),
    Published('bisa_swin_tiny_additive', _BISA | _ADDITIVE, '28.4', '5.3'),
)
SOURCES = {source.name: source for model in PUBLISHED for source in model.files}
BY_ADDRESS = {source.url: source for source in SOURCES.values()}
SCHEMES = tuple(dict.fromkeys(name.split('://')[0] + '://' for name in SOURCES))
