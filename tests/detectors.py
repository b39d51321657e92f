"""Detectors of the configs with random weights whose scores differ."""

import torch
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import MODELS, init_default_scope

from mmbixt.config import read_config
from mmbixt.export import smooth_images
from mmbixt.export.detector import ExportedDetector

SIZE = 96, 128
# what the last layers of heads return: standard deviation and mean
LAST = dict(
    rpn_cls=(2, 0),
    rpn_reg=(0.3, 0),
    retina_cls=(1.5, -4),
    retina_reg=(0.3, 0),
    fc_cls=(2, 0),
    fc_reg=(0.5, 0),
    conv_logits=(2, 0),
)


def build_detector(name, **options):
    """A detector and its config; with few proposals, and other options for ``merge_from_dict``."""
    config = read_config(name)
    init_default_scope('mmdet')
    config.model.backbone.init_cfg = None
    if 'rpn' in config.model.test_cfg:
        config.model.test_cfg.rpn.update(nms_pre=200, max_per_img=100)
    config.merge_from_dict(options)
    torch.manual_seed(0)
    model = revert_sync_batchnorm(MODELS.build(config.model)).eval()
    spread(model, lambda: ExportedDetector(model, config)(smooth_images(1, *SIZE)))
    return model, config


@torch.no_grad()
def spread(model, run):
    """Scale the last layers of the heads, so that scores and boxes differ as after a training."""
    for name, layer in model.named_modules():
        if (kind := name.rpartition('.')[2]) in LAST:
            seen = []
            handle = layer.register_forward_hook(
                lambda *call, seen=seen: seen.append(call[2].transpose(0, 1).flatten(1))
            )
            run()
            handle.remove()
            values, (std, mean) = torch.cat(seen, 1), LAST[kind]
            factor = std / values.std(1)
            layer.bias.sub_(values.mean(1)).mul_(factor).add_(mean)
            layer.weight.mul_(factor.view(-1, *[1] * (layer.weight.ndim - 1)))
