"""Inference of Mask R-CNN, Faster R-CNN and RetinaNet in plain torch and torchvision.

It uses the networks, weights and settings of a model of mmdet, and replaces mmdet's computation of
boxes; tests compare the two. All shapes are fixed, as exporters need: lists of boxes are filled up
with boxes of no size and score 0.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from mmengine.config import Config
from torch import Tensor, nn
from torchvision.ops import nms, roi_align

from mmbixt.config import all_dicts
from mmbixt.errors import UserError
from mmbixt.export.files import normalise

KINDS = {'MaskRCNN', 'FasterRCNN', 'RetinaNet', 'nms'}
# Two detections are the same within these of boxes (pixels), scores, labels and probabilities of
# masks. Rounding alone makes 1e-3 and 1e-5; where two boxes overlap as much as non-maximum
# suppression allows, another one may be kept.
LIMITS = 0.1, 1e-3, 0, 1e-2
LEAST, LEAST_OF_ROUTING = 0.98, 0.9  # share of detections that are the same


class Boxes(NamedTuple):
    """Boxes (n,4) as left, top, right, bottom, their scores (n), and labels (n) or levels (n)."""

    boxes: Tensor
    scores: Tensor
    labels: Tensor


class ExportedDetector(nn.Module):
    """A detector with its preprocessing, for one image.

    Args:
        model: of mmdet, in evaluation mode.
        config: of the model.
    """

    free, batch = None, 1

    def __init__(self, model: nn.Module, config: Config) -> None:
        super().__init__()
        kinds = {x['type'] for x in all_dicts(model.test_cfg) if 'type' in x}
        if others := {type(model).__name__, *kinds} - KINDS:  # unusual heads fail the comparison
            raise UserError(
                f'{", ".join(others)} cannot be exported, only {", ".join(sorted(KINDS))}.'
            )
        self.model, self.prepare = model, config.model.get('data_preprocessor', {})
        self.outputs = ['boxes', 'scores', 'labels'] + ['masks'] * model.with_mask

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """An image (1,3,H,W) to boxes (n,4), scores (n), labels (n), and perhaps masks (n,28,28).

        The best box is the first; n is ``max_per_img``, and scores are 0 where there is no box.
        """
        model, size = self.model, images.shape[2:]
        maps = model.extract_feat(normalise(images, model, self.prepare))
        if not hasattr(model, 'roi_head'):
            return tuple(dense_boxes(model.bbox_head, model.test_cfg, maps, size))
        proposals = dense_boxes(model.rpn_head, model.test_cfg['rpn'], maps, size, is_rpn=True)
        found = roi_boxes(model.roi_head, model.test_cfg['rcnn'], maps, proposals, size)
        if not model.with_mask:
            return tuple(found)
        return *found, masks(model.roi_head, maps, found, roi_features)

    def compare(
        self, outputs: Sequence[np.ndarray], model: nn.Module, images: Tensor, has_routes: bool
    ) -> tuple[str, bool]:
        """Compare outputs with what mmdet finds in the same image: a text, and if they agree."""
        is_real, same = outputs[1] > 0, True  # same: (found, expected)
        for actual, expected, limit in zip(outputs, predict(model, images), LIMITS, strict=False):
            difference = np.abs(actual[is_real][:, None] - expected.numpy()[None])
            same &= difference.max(axis=(*range(2, difference.ndim),), initial=0) <= limit
        if not (most := max(same.shape)):
            return 'there is nothing to compare: --photo FILE names a photo with objects', False
        count, least = same.any(0).sum(), LEAST_OF_ROUTING if has_routes else LEAST
        return f'{count} of {most} detections agree', bool(count >= least * most)


def dense_boxes(
    head: nn.Module,
    options: Mapping[str, Any],
    maps: Sequence[Tensor],
    size: Sequence[int],
    is_rpn: bool = False,
) -> Boxes:
    """Boxes of an image from feature maps (1,C,H,W): RetinaNet's, or the RPN's proposals.

    Labels are classes, or levels of the RPN.
    """
    # of each level: (1,A*K,H,W) and (1,A*4,H,W), of A anchors in each cell and K classes
    logits, deltas = head(maps)
    anchors = head.prior_generator.grid_priors([x.shape[2:] for x in logits], device=maps[0].device)
    levels, most = [], options.get('nms_pre', -1)
    for number, anchor in enumerate(anchors):
        delta = deltas[number][0].permute(1, 2, 0).reshape(-1, 4)
        scores = logits[number][0].permute(1, 2, 0).reshape(len(delta), -1).sigmoid()
        count = min(most, scores.numel()) if most > 0 else scores.numel()
        best, pairs = scores.flatten().topk(count)
        i, labels = pairs // scores.shape[1], pairs % scores.shape[1]
        best = best * (best > options.get('score_thr', 0))
        labels = torch.full_like(labels, number) if is_rpn else labels
        levels.append(Boxes(decode(anchor[i], delta[i], head.bbox_coder, size), best, labels))
    found = Boxes(*(torch.cat(parts) for parts in zip(*levels, strict=True)))
    return suppress(found, options, options.get('min_bbox_size', -1))


def roi_boxes(
    roi_head: nn.Module,
    options: Mapping[str, Any],
    maps: Sequence[Tensor],
    proposals: Boxes,
    size: Sequence[int],
) -> Boxes:
    """Boxes of an image from feature maps (1,C,H,W) and proposals."""
    head, extractor = roi_head.bbox_head, roi_head.bbox_roi_extractor
    logits, deltas = head(roi_features(extractor, maps, proposals.boxes))
    scores = logits.softmax(-1)[:, :-1] * (proposals.scores > 0)[:, None]
    deltas = deltas.unflatten(1, (-1, 4)).expand(-1, scores.shape[1], -1)  # of one or all classes
    boxes = decode(proposals.boxes[:, None], deltas, head.bbox_coder, size)
    i, labels = (scores > options['score_thr']).nonzero(as_tuple=True)
    return suppress(Boxes(boxes[i, labels], scores[i, labels], labels), options)


def masks(roi_head: nn.Module, maps: Sequence[Tensor], found: Boxes, extract: Callable) -> Tensor:
    """The probabilities (n,28,28) that the cells of boxes belong to their objects."""
    logits = roi_head.mask_head(extract(roi_head.mask_roi_extractor, maps, found.boxes))
    labels = found.labels.clamp(max=logits.shape[1] - 1)  # one mask for each or for all classes
    return logits[torch.arange(len(labels), device=labels.device), labels].sigmoid()


def decode(anchors: Tensor, deltas: Tensor, coder: Any, size: Sequence[int]) -> Tensor:
    """Anchors (...,4) and deltas (...,4) to boxes (...,4) within an image.

    Deltas are the shift of the centre, relative to the anchor, and logarithms of the growth;
    ``DeltaXYWHBBoxCoder`` has their mean and standard deviation.
    """
    deltas = deltas * deltas.new_tensor(coder.stds) + deltas.new_tensor(coder.means)
    centre = (anchors[..., :2] + anchors[..., 2:]) * 0.5
    sides = anchors[..., 2:] - anchors[..., :2]
    most = abs(math.log(16 / 1000))  # as in mmdet, against overflow
    centre = centre + sides * deltas[..., :2]
    sides = sides * deltas[..., 2:].clamp(-most, most).exp()
    boxes = torch.cat([centre - sides * 0.5, centre + sides * 0.5], -1)
    height, width = size
    return torch.minimum(boxes.clamp(min=0), boxes.new_tensor([width, height, width, height]))


def suppress(found: Boxes, options: Mapping[str, Any], least: float = -1) -> Boxes:
    """Non-maximum suppression within each label: the ``max_per_img`` best boxes.

    Candidates do not count if their score is 0, or a side is at most ``least`` pixels.
    """
    boxes, scores, labels = found
    count = options['max_per_img']
    counts = (boxes[:, 2:] - boxes[:, :2] > least).all(1) & (scores > 0)
    boxes = torch.cat([boxes * counts[:, None], boxes.new_zeros(count, 4)])
    scores = torch.cat([scores * counts, scores.new_zeros(count)])
    labels = torch.cat([labels, labels.new_zeros(count)])
    apart = labels.to(boxes) * (boxes.max() + 1)  # boxes of different labels do not overlap
    keep = nms(boxes + apart[:, None], scores, options['nms']['iou_threshold'])
    keep = keep[torch.arange(count, device=keep.device)]  # so that exporters know the shape
    return Boxes(boxes[keep], scores[keep], labels[keep])


def roi_features(extractor: nn.Module, maps: Sequence[Tensor], boxes: Tensor) -> Tensor:
    """Features (n,C,s,s) of boxes (n,4), each from one of the feature maps (1,C,H,W).

    Shapes are fixed, so each level computes features of all boxes. Those of other levels, and of
    boxes of no size, are computed for a box of one pixel, and multiplied by 0.
    """
    sides = boxes[:, 2:] - boxes[:, :2]
    level = torch.floor(torch.log2(sides.prod(1).sqrt() / extractor.finest_scale + 1e-6))
    level = level.clamp(0, len(extractor.roi_layers) - 1)
    pixel, features = boxes.new_tensor([0, 0, 1, 1]), 0
    for i, layer in enumerate(extractor.roi_layers):
        counts = ((sides > 0).all(1) & (level == i))[:, None]
        rois = torch.cat([boxes.new_zeros(len(boxes), 1), torch.where(counts, boxes, pixel)], 1)
        options = layer.output_size, layer.spatial_scale, layer.sampling_ratio or -1, layer.aligned
        features = features + roi_align(maps[i], rois, *options) * counts[..., None, None]
    return features


@torch.no_grad()
def predict(model: nn.Module, images: Tensor) -> tuple[Tensor, ...]:
    """What :class:`ExportedDetector` returns of an image (1,3,H,W), by mmdet, without padding."""
    from mmdet.structures import DetDataSample
    from mmdet.structures.bbox import bbox2roi

    size = tuple(images.shape[2:])
    info = dict(ori_shape=size, img_shape=size, pad_shape=size, scale_factor=(1.0, 1.0))
    data = dict(inputs=[*images], data_samples=[DetDataSample(metainfo=info)])
    data = model.data_preprocessor(data)
    [sample] = model.predict(data['inputs'], data['data_samples'])
    found = Boxes(*(sample.pred_instances[name] for name in ('bboxes', 'scores', 'labels')))
    if not model.with_mask:
        return tuple(found)

    def extract(extractor: nn.Module, maps: Sequence[Tensor], boxes: Tensor) -> Tensor:
        return extractor(maps[: extractor.num_inputs], bbox2roi([boxes]))

    # mmdet's own are pasted into the image
    return *found, masks(model.roi_head, model.extract_feat(data['inputs']), found, extract)
