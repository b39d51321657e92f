import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from torch import nn
from training import segmentor
from variants import VARIANTS, build

from mmbixt.errors import UserError
from mmbixt.export import smooth_images
from mmbixt.export.segmentor import ExportedSegmentor


@torch.no_grad()
def test_one_logit_for_two_classes():
    """The labels are mmseg's, with its threshold."""
    init_default_scope('mmseg')
    options = dict(num_classes=2, out_channels=1, threshold=0.4)
    config = segmentor('linear_bixt_ti_ade20k', dict(out_indices=(3,)))
    config.decode_head.update(options, loss_decode=dict(type='CrossEntropyLoss', use_sigmoid=True))
    config.data_preprocessor.pop('size')
    model = MODELS.build(config).eval()
    nn.init.normal_(model.decode_head.conv_seg.weight)
    exported = ExportedSegmentor(model, Config(dict(model=config))).eval()
    images = smooth_images(1, 64, 96)
    labels = exported(images)
    assert 0.1 < labels.float().mean() < 0.9
    text, is_equal = exported.compare([labels.numpy()], model, images, False)
    assert is_equal, text
    assert not exported.compare([1 - labels.numpy()], model, images, False)[1]


def test_windows_have_no_free_sizes():
    model = nn.Module()
    model.backbone = build(VARIANTS['swin'])
    with pytest.raises(UserError, match='BiSASwin is exported for one height and width'):
        ExportedSegmentor(model, Config(dict(model={})), dynamic=True)
