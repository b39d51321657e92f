"""The classifiers of the four families."""

import re
from collections.abc import Mapping
from typing import Any

from timm.models import register_notrace_module
from torch import Tensor

from mmbixt.backbones import BiFormer, BiSASwin, BiXT, XCiT, bisa_swin
from mmbixt.backbones.bisa_swin import NormMean
from mmbixt.backbones.final_layers import BatchNormMean, ClassAttention, LatentMean
from mmbixt.checkpoints.state_dict import rename, unwrap
from mmbixt.layers import ClassAttentionLayer, FourierPositionEncoding, LinearPatchEmbed
from mmbixt.timm.contract import Classifier


class BiXTClassifier(Classifier, LatentMean, BiXT):
    __doc__ = BiXT.__doc__


class XCiTClassifier(Classifier, ClassAttention, XCiT):
    __doc__ = XCiT.__doc__


class BiFormerClassifier(Classifier, BatchNormMean, BiFormer):
    __doc__ = BiFormer.__doc__


class BiSASwinClassifier(Classifier, NormMean, BiSASwin):
    __doc__ = BiSASwin.__doc__


CLASSIFIERS = dict(
    BiXT=BiXTClassifier,
    XCiT=XCiTClassifier,
    BiFormer=BiFormerClassifier,
    BiSASwin=BiSASwinClassifier,
)

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
