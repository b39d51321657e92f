from types import SimpleNamespace

import mmcv
import torch
from mmpretrain.models import ClsDataPreprocessor
from mmpretrain.structures import DataSample
from mmpretrain.visualization import UniversalVisualizer

from mmbixt.engine import DrawClassesHook


def test_each_image_has_a_picture_in_its_colours(tmp_path):
    visualizer = UniversalVisualizer(vis_backends=None)
    visualizer.dataset_meta = dict(classes=['cat', 'dog'])
    model = SimpleNamespace(data_preprocessor=ClsDataPreprocessor(to_rgb=False))
    runner, hook = SimpleNamespace(model=model, visualizer=visualizer), DrawClassesHook(tmp_path)
    blue = torch.zeros(3, 40, 60, dtype=torch.uint8)
    blue[0] = 255  # as OpenCV reads it
    samples = [DataSample(metainfo=dict(img_path=f'val/{k}/part/1.jpg')) for k in ('cat', 'dog')]
    for sample in samples:
        sample.set_pred_score(torch.tensor([0.3, 0.7])).set_pred_label(1).set_gt_label(0)
    hook.after_test_iter(runner, 0, dict(inputs=[blue, blue]), samples)
    names = ['part_1.jpg.png', 'part_1.jpg_2.png']
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    picture = mmcv.imread(tmp_path / names[0])  # BGR
    assert picture[-1, -1, 0] > 200 > 50 > picture[-1, -1, 2]
