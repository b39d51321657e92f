"""The classifiers of the families."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from torch import Tensor

from mmbixt import backbones
from mmbixt.backbones.base import DenseBackbone
from mmbixt.backbones.loading import classifier_names
from mmbixt.checkpoints.state_dict import rename, unwrap
from mmbixt.timm.contract import Classifier

PARTS = re.compile(r'^(backbone|neck)\.|(?<=^head\.)fc\.')  # of mmpretrain's ImageClassifier


@cache
def classifier_of(family: type[DenseBackbone]) -> type[Classifier]:
    """The authors' classifier of a family, for timm."""
    name, bases = f'{family.__name__}Classifier', (Classifier, family.final_layers, family)
    globals()[name] = kind = type(name, bases, dict(__doc__=family.__doc__))  # pickle looks there
    return kind


CLASSIFIERS = {name: classifier_of(getattr(backbones, name)) for name in backbones.__all__}


def checkpoint_filter_fn(state: Mapping[str, Any], model: Classifier) -> dict[str, Tensor]:
    """The weights of a file of the authors, or of mmpretrain's ``ImageClassifier``, for a model."""
    names = classifier_names(unwrap(state), model.neck_in_classifier)
    weights = model.convert(rename(names, lambda key: PARTS.sub('', key)))
    is_built_by_timm, head = hasattr(model, 'pretrained_cfg'), weights.get('head.weight', ())
    if is_built_by_timm and len(head) == model.num_classes > 0:
        model.pretrained_cfg['num_classes'] = len(head)  # timm drops heads of another number
    return weights
