"""The models that the authors publish: their names, mmbixt's configs, and the papers' numbers."""

from dataclasses import dataclass
from typing import Any

from mmbixt.checkpoints.sources import BIXT, BiXTModel


@dataclass(frozen=True, eq=False)
class Published:
    """A classification model of the authors, and the dense backbone with its weights.

    Attributes:
        name: the name that the authors use.
        backbone: config of the dense backbone.
        params: parameters of the classifier in millions, as printed in the paper; empty if not.
        gmacs: multiply-adds of the classifier at 224 x 224, in billions, as printed in the paper.
        at_512: entries of the config that differ at 512 x 512.
        weights: what the names of its weights begin with (``mmbixt.checkpoints.sources``); empty if
            they cannot be downloaded.
    """

    name: str
    backbone: dict[str, Any]
    params: str = ''
    gmacs: str = ''
    at_512: tuple[tuple[str, Any], ...] = ()
    weights: str = ''

    @property
    def family(self) -> str:
        return self.backbone['type'].removeprefix('mmbixt.')

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of the backbone's class."""
        return {key: value for key, value in self.backbone.items() if key != 'type'}


def _bixt(model: BiXTModel) -> Published:
    backbone = dict(type='mmbixt.BiXT', **model.options)
    weights = model.weights and f'bixt://{model.weights}'
    return Published(f'bixt_{model.name}', backbone, model.params, model.gmacs, weights=weights)


def _xcit(size: str, depth: int, patch: int, params: str, gmacs: str) -> Published:
    backbone = dict(type='mmbixt.XCiT', arch=f'{size}{depth}', patch_size=patch)
    weights = f'xcit://{size}{depth}-p{patch}'
    return Published(f'xcit_{size}_{depth}_p{patch}', backbone, params, gmacs, weights=weights)


def _biformer(arch: str, params: str, gmacs: str) -> Published:
    backbone = dict(type='mmbixt.BiFormer', arch=arch, num_regions=7)
    name = f'biformer_{arch.replace("-", "_")}'
    return Published(name, backbone, params, gmacs, at_512=(('num_regions', 8),))


def _swin(name: str, arch: str, params: str, gmacs: str, stages: tuple[int, ...]) -> Published:
    backbone = dict(type='mmbixt.BiSASwin', arch=arch, bisa_stages=stages)
    return Published(name, backbone, params, gmacs)


PUBLISHED = (
    *map(_bixt, BIXT),
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
