"""Random labels of the frameworks, for losses of whole models."""

import numpy as np
import torch
from mmengine.structures import InstanceData, PixelData

OBJECTS = 8  # in an image
CLASSES = 19  # no data set of the configs has fewer than Cityscapes


def random_labels(scope, size):
    """A data sample of mmseg, mmdet or mmpretrain for an image (H,W)."""
    meta = dict(img_shape=size, ori_shape=size, pad_shape=size, batch_input_shape=size)
    if scope == 'mmseg':
        from mmseg.structures import SegDataSample

        sample = SegDataSample(metainfo=meta)
        sample.gt_sem_seg = PixelData(data=torch.randint(CLASSES, (1, *size)))
    elif scope == 'mmpretrain':
        from mmpretrain.structures import DataSample

        sample = DataSample(metainfo=meta).set_gt_label(torch.randint(CLASSES, (1,)))
    else:
        from mmdet.structures import DetDataSample
        from mmdet.structures.mask import BitmapMasks

        sample = DetDataSample(metainfo=meta | dict(scale_factor=(1.0, 1.0)))
        middle = torch.tensor([size[1] / 2, size[0] / 2])
        first, last = torch.rand(2, OBJECTS, 2) * middle  # corners in two quarters of the image
        boxes = torch.cat([first, last + middle], 1)
        masks = BitmapMasks(np.ones((OBJECTS, *size), np.uint8), *size)
        classes = torch.randint(CLASSES, (OBJECTS,))
        sample.gt_instances = InstanceData(bboxes=boxes, labels=classes, masks=masks)
        sample.ignored_instances = InstanceData(bboxes=boxes[:0], labels=classes[:0])
    return sample
