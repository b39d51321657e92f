"""The configs of docs/openmmlab.md train and predict, each where its project is installed."""

import numpy as np
import pytest
import torch
from documents import shown
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from mmengine.structures import InstanceData

from mmbixt.checkpoints.sources import find

PAGE = {
    'mmpose': shown('mmpose'),
    'mmaction': shown('mmaction'),
    'mmrotate': shown('mmrotate'),
    'mmdet3d': shown('mmdet3d'),
}


def inputs_of_mmpose():
    from mmpose.testing import get_packed_inputs

    return get_packed_inputs(2)


def inputs_of_mmaction():
    from mmaction.structures import ActionDataSample

    frames = torch.randint(256, (3, 3, 64, 64), dtype=torch.uint8)
    return dict(inputs=[frames], data_samples=[ActionDataSample().set_gt_label(0)])


def inputs_of_mmrotate():
    from mmrotate.testing import demo_mm_inputs

    return demo_mm_inputs(2, [(3, 128, 128)] * 2, use_box_type=True)


def inputs_of_mmdet3d():
    from mmdet3d.structures import CameraInstance3DBoxes, Det3DDataSample

    camera = np.array([[100, 0, 64, 0], [0, 100, 64, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    sample = Det3DDataSample(
        metainfo=dict(
            box_type_3d=CameraInstance3DBoxes,
            cam2img=camera,
            img_shape=(128, 128),
            scale_factor=(1, 1),
        )
    )
    box, center = [1, 1.5, 20, 3.9, 1.6, 1.6, 0.3], [69, 71.5]  # a car, and where it is seen
    sample.gt_instances_3d = InstanceData(
        bboxes_3d=CameraInstance3DBoxes([box], origin=(0.5, 0.5, 0.5)),
        labels_3d=torch.tensor([2]),
        centers_2d=torch.tensor([center]),
        depths=torch.tensor([20.0]),
    )
    sample.gt_instances = InstanceData(
        bboxes=torch.tensor([[55.0, 60, 83, 83]]), labels=torch.tensor([2])
    )
    return dict(inputs=dict(img=[torch.rand(3, 128, 128)]), data_samples=[sample])


PREDICTED = {
    'mmpose': (inputs_of_mmpose, 'pred_instances'),
    'mmaction': (inputs_of_mmaction, 'pred_score'),
    'mmrotate': (inputs_of_mmrotate, 'pred_instances'),
    'mmdet3d': (inputs_of_mmdet3d, 'pred_instances_3d'),
}


@pytest.mark.parametrize('project', PAGE)
def test_trains_and_predicts(project):
    pytest.importorskip(f'{project}.models')
    ((code,), (inputs, predicted)) = PAGE[project], PREDICTED[project]
    cfg = Config.fromstring(code, '.py').model
    find(cfg.backbone.pop('init_cfg').checkpoint)  # a name that exists
    init_default_scope(project)
    model = MODELS.build(cfg)
    losses = model(**model.data_preprocessor(inputs(), training=True), mode='loss')
    model.parse_losses(losses)[0].backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []
    with torch.no_grad():
        (sample, *_) = model.eval()(**model.data_preprocessor(inputs()), mode='predict')
    assert len(getattr(sample, predicted))
