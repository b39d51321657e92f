"""Near names for misspelt types and arguments."""

import numpy as np
import pytest
from mmengine.registry import DATASETS, HOOKS, MODELS, DefaultScope

from mmbixt.check.names import suggest

XCIT = dict(type='mmbixt.XCiT', arch='nano12')


@pytest.mark.parametrize(
    ('registry', 'config', 'message'),
    [
        (
            MODELS,
            dict(type='mmbixt.XCIT'),
            "There is no model 'mmbixt.XCIT'. Did you mean 'mmbixt.XCiT'",
        ),
        (
            MODELS,
            dict(XCIT, patchsize=8),
            "XCiT has no argument 'patchsize'. Did you mean 'patch_size'",
        ),
        (MODELS, dict(XCIT, in_chans=4), "'in_chans'. Did you mean 'in_channels'?"),
        (
            MODELS,
            dict(type='EncoderDecodr'),
            "no model 'EncoderDecodr'. Did you mean 'EncoderDecoder'",
        ),
        (MODELS, dict(type='SingleStageDetector'), "Did you mean 'mmdet.SingleStageDetector'?"),
        (MODELS, dict(type='FCNHead', num_clases=3), "'num_clases'. Did you mean 'num_classes'?"),
        (DATASETS, dict(type='ADE20kDataset'), "Did you mean 'ADE20KDataset'?"),
        (HOOKS, dict(type='LoggerHook', intervall=2), "'intervall'. Did you mean 'interval'?"),
        (HOOKS, dict(type='Zebra'), "There is no hook 'Zebra'."),
    ],
)
def test_near_names(registry, config, message):
    with DefaultScope.overwrite_default_scope('mmseg'), pytest.raises(Exception) as caught:  # noqa: PT011
        registry.build(config)
    assert message in suggest(caught.value)


def test_a_data_set_without_images(tmp_path):
    empty = dict(type='mmseg.BaseSegDataset', data_prefix=dict(img_path=str(tmp_path)), pipeline=[])
    with pytest.raises(ValueError, match='need at least one array') as caught:
        DATASETS.build(empty)
    assert 'A data set has no images' in suggest(caught.value)


@pytest.mark.parametrize('error', [KeyError('x'), TypeError('x'), KeyError(), ValueError('x is')])
def test_other_errors(error):
    assert suggest(error) is None
    with pytest.raises(ValueError, match='need at least one array') as caught:
        np.concatenate([])
    assert suggest(caught.value) is None
