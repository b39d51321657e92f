"""The classifiers of the four families."""

import re
from collections.abc import Mapping
from typing import Any

from timm.models import register_notrace_module
from torch import Tensor

from mmbixt import backbones
from mmbixt.backbones import bisa_swin
from mmbixt.backbones.base import DenseBackbone
from mmbixt.checkpoints.state_dict import rename, unwrap
from mmbixt.layers import ClassAttentionLayer, FourierPositionEncoding, LinearPatchEmbed
from mmbixt.timm.contract import Classifier


def make_classifier(backbone: type[DenseBackbone]) -> type[Classifier]:
    options = dict(may_be_missing=rf'head\.|{backbone.may_be_missing}', __doc__=backbone.__doc__)
    bases = (Classifier, backbone.final_layers, backbone)
    return type(f'{backbone.__name__}Classifier', bases, options)


CLASSIFIERS = {name: make_classifier(getattr(backbones, name)) for name in backbones.__all__}
globals().update((kind.__name__, kind) for kind in CLASSIFIERS.values())  # for pickle

# steps of a graph by torch.fx, which cannot trace a choice by sizes; layers are steps, too
_STEPS = (ClassAttentionLayer, FourierPositionEncoding, LinearPatchEmbed)
for _module in (*_STEPS, bisa_swin.PatchEmbed, bisa_swin.PatchMerging):
    register_notrace_module(_module)

PARTS = re.compile(r'^(backbone|neck)\.')  # of mmpretrain's ImageClassifier


def checkpoint_filter_fn(state: Mapping[str, Any], model: Classifier) -> dict[str, Tensor]:
    """The weights of a file of the authors, or of mmpretrain's ``ImageClassifier``, for a model."""

    def new_name(key: str) -> str:
        key = re.sub(*model.neck_in_classifier, PARTS.sub('', key))
        return re.sub(r'^head\.fc\.', 'head.', PARTS.sub('', key))

    return model.convert(rename(unwrap(state), new_name))
