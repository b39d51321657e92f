"""The models that the authors publish: their names, mmbixt's configs, and the papers' numbers."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False)
class Published:
    """A classification model of the authors, and the dense backbone with its weights.

    Attributes:
        name: the name that the authors use.
        backbone: config of the dense backbone.
        params: parameters of the classifier in millions, as printed in the paper; empty if not.
        gmacs: multiply-adds of the classifier at 224 x 224, in billions, as printed in the paper.
        at_512: entries of the config that differ at 512 x 512.
    """

    name: str
    backbone: dict[str, Any]
    params: str = ''
    gmacs: str = ''
    at_512: tuple[tuple[str, Any], ...] = ()

    @property
    def family(self) -> str:
        return self.backbone['type'].removeprefix('mmbixt.')

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of the backbone's class."""
        return {key: value for key, value in self.backbone.items() if key != 'type'}


def _bixt(name: str, params: str = '', gmacs: str = '', **options: Any) -> Published:
    return Published(f'bixt_{name}', dict(type='mmbixt.BiXT', **options), params, gmacs)


def _xcit(size: str, depth: int, patch: int, params: str, gmacs: str) -> Published:
    backbone = dict(type='mmbixt.XCiT', arch=f'{size}{depth}', patch_size=patch)
    return Published(f'xcit_{size}_{depth}_p{patch}', backbone, params, gmacs)


def _biformer(arch: str, params: str, gmacs: str) -> Published:
    backbone = dict(type='mmbixt.BiFormer', arch=arch, num_regions=7)
    name = f'biformer_{arch.replace("-", "_")}'
    return Published(name, backbone, params, gmacs, at_512=(('num_regions', 8),))


def _swin(name: str, arch: str, params: str, gmacs: str, stages: tuple[int, ...]) -> Published:
    backbone = dict(type='mmbixt.BiSASwin', arch=arch, bisa_stages=stages)
    return Published(name, backbone, params, gmacs)


# A published BiXT of 12 layers (13 where the name has d13) loads into one layer less.
PUBLISHED = (
    _bixt('ti_l64_p16', '15.11', '1.68', depth=11),
    _bixt('ti_l64_p16s8', '15.12', '4.71', depth=11, patch_stride=8),
    _bixt('ti_l64_p16s4', '15.12', '16.81', depth=11, patch_stride=4),
    _bixt('ti_l32_p16', '15.11', '1.30', depth=11, num_latents=32),
    _bixt('ti_l128_p16', '15.13', '2.47', depth=11, num_latents=128),
    _bixt('ti_l64_d13_p16', '16.38', '1.82'),
    _bixt('ti_l64_d13_p16s8', patch_stride=8),
    _bixt('ti_l64_d13_p16s4', patch_stride=4),
    _bixt('ti_cnv_l64_p16', depth=11, patch_embed='conv'),
    _bixt('ti_cnv_l64_d13_p16', patch_embed='conv'),
    _bixt('ti_cnv_l64_d13_p8', patch_embed='conv', patch_stride=8),
    _bixt('ti_cnv_l64_d13_p4', patch_embed='conv', patch_stride=4),
    _bixt('ed256_l64_p16', arch='d256'),
    _bixt('ed256_l64_p16s8', arch='d256', patch_stride=8),
    _bixt('ed256LS_l64_p16s8', arch='d256-ls', patch_stride=8),
    _xcit('nano', 12, 16, '3', '0.5'),
    _xcit('nano', 12, 8, '3', '2.1'),
    _xcit('tiny', 12, 16, '7', '1.2'),
    _xcit('tiny', 12, 8, '7', '4.8'),
    _xcit('tiny', 24, 16, '12', '2.3'),
    _xcit('tiny', 24, 8, '12', '9.2'),
    _xcit('small', 12, 16, '26', '4.8'),
    _xcit('small', 12, 8, '26', '18.9'),
    _xcit('small', 24, 16, '48', '9.1'),
    _xcit('small', 24, 8, '48', '36.0'),
    _xcit('medium', 24, 16, '84', '16.2'),
    _xcit('medium', 24, 8, '84', '63.9'),
    _xcit('large', 24, 16, '189', '36.1'),
    _xcit('large', 24, 8, '189', '142.2'),
    _biformer('tiny', '13.1', '2.2'),
    _biformer('small', '25.5', '4.5'),
    _biformer('base', '56.8', '9.8'),
    _biformer('stl', '28.4', '4.6'),
    _biformer('stl-nchw', '28.4', '4.6'),
    _swin('swin_tiny', 'tiny', '28.3', '4.5', ()),
    _swin('swin_small', 'small', '50', '8.7', ()),
    _swin('swin_base', 'base', '88', '15.4', ()),
    _swin('bisa_swin_tiny', 'tiny', '28.4', '5.3', (0,)),
)
