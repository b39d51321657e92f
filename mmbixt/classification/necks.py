"""The layers between backbone and head of the authors' classifiers, as necks.

Each neck returns one vector for each image. It can load its weights from a file of a classifier:
``neck=dict(type=..., init_cfg=dict(type='Pretrained', checkpoint=...))``.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

from torch import Tensor

from mmbixt import backbones
from mmbixt.backbones.final_layers import BatchNormMean, ClassAttention, FinalLayers, LatentMean
from mmbixt.backbones.weights import LoadsFiles, State
from mmbixt.registry import MODELS


class ClassifierNeck(FinalLayers, LoadsFiles):
    """Final layers that load all of their weights, also from a whole classifier, or raise an error.

    Its arguments are those of ``add_final_layers``, and mmengine's ``init_cfg``.
    """

    uses_all = False

    def __init__(self, *sizes: Any, init_cfg: dict | None = None, **options: Any) -> None:
        super().__init__(init_cfg)
        self.add_final_layers(*sizes, **options)

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor]:
        """The last feature map (B,C,H,W), or the latents (B,M,C), to (B,C)."""
        return (self.pool(self.finish(inputs[-1])),)

    def convert(self, state: State) -> dict[str, Tensor]:
        """Without the other parts of a whole classifier."""
        own = {key.partition('.')[0] for key in self.state_dict()}
        return {key: x for key, x in state.items() if key.partition('.')[0] in own}


@cache
def neck_of(final_layers: type[FinalLayers]) -> type[ClassifierNeck]:
    """The neck with these final layers, such as ``mmbixt.LatentMeanNeck`` for ``LatentMean``."""
    name, text = f'{final_layers.__name__}Neck', final_layers.__doc__
    kind = type(name, (final_layers, ClassifierNeck), dict(__doc__=text, __module__=__name__))
    return MODELS.register_module(module=kind)


def is_mean(final_layers: type[FinalLayers]) -> bool:
    """Whether these final layers are mmpretrain's ``GlobalAveragePooling``."""
    own = final_layers.finish, final_layers.pool
    return own == (FinalLayers.finish, FinalLayers.pool)


for _name in backbones.__all__:
    if not is_mean(getattr(backbones, _name).final_layers):
        neck_of(getattr(backbones, _name).final_layers)
BatchNormMeanNeck = neck_of(BatchNormMean)
ClassAttentionNeck = neck_of(ClassAttention)
LatentMeanNeck = neck_of(LatentMean)
