"""Pictures of errors near boundaries, drawn while a runner evaluates."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from matplotlib.figure import Figure
from mmengine.dist import is_main_process
from mmengine.fileio import get
from mmengine.hooks import Hook
from mmengine.runner import BaseLoop, Runner
from mmengine.structures import BaseDataElement

from mmbixt.evaluation.boundary import band_pixels
from mmbixt.registry import HOOKS
from mmbixt.visualization.boundary_errors import error_figure, render

MISSING = {
    'gt_sem_seg': 'the dataset has no true labels, or its pipeline does not load them '
    '(LoadAnnotations), and without them there are no errors to draw',
    'pred_sem_seg': 'the model does not predict a label map; pictures of errors near boundaries '
    'are for segmentors of mmseg',
}


class NoLabelsError(ValueError):
    """An image has no true or no predicted label map."""


@HOOKS.register_module()
class BoundaryVisHook(Hook):
    """Draw where the predictions of mmseg's models are wrong near boundaries.

    The pictures of :func:`mmbixt.visualization.boundary_errors.error_figure` go to all
    ``vis_backends`` of the config's visualizer: files in ``TIMESTAMP/vis_data/vis_image``,
    TensorBoard, W&B ... They are called ``val_boundary_IMAGE`` or ``test_boundary_IMAGE``; their
    step is the iteration of the training, 0 without one. Of several processes only the first one
    draws, from the images that it evaluates.

    Args:
        draw: False turns the hook off.
        interval: of how many images one is drawn, beginning with the first.
        max_images: the most that are drawn in an evaluation.
        width: of the band around true boundaries, in pixels (int) or as a share of the image's
            diagonal (float below 1).
        ignore_index: true label of pixels that do not count.
        backend_args: by which image files are read, as in ``LoadImageFromFile``.

    Example:
        >>> custom_hooks = [dict(type='mmbixt.BoundaryVisHook', interval=100)]
    """

    def __init__(
        self,
        draw: bool = True,
        interval: int = 50,
        max_images: int = 10,
        width: int | float = 3,
        ignore_index: int = 255,
        backend_args: dict[str, Any] | None = None,
    ) -> None:
        if interval < 1 or max_images < 1:
            raise ValueError(
                f'BoundaryVisHook: interval={interval} and max_images={max_images} must be at '
                'least 1; draw=False turns it off'
            )
        band_pixels(width, (1, 1))  # raises if it is wrong, before hours of training
        self.draw = draw
        self.interval = interval
        self.max_images = max_images
        self.options = dict(width=width, ignore_index=ignore_index, backend_args=backend_args)
        self.seen = 0

    def _before_epoch(self, runner: Runner, mode: str = 'train') -> None:
        self.seen = 0

    def _after_iter(
        self,
        runner: Runner,
        batch_idx: int,
        data_batch: Any = None,
        outputs: Sequence[BaseDataElement] | dict | None = None,
        mode: str = 'train',
    ) -> None:
        """Draw every ``interval``-th image of the evaluation; batches may be of any size.

        Args:
            runner: gives the visualizer and the iteration.
            batch_idx: not used.
            data_batch: not used.
            outputs: samples with predictions and truths (1,H,W).
            mode: 'train', 'val' or 'test'.
        """
        if mode == 'train' or not self.draw or not is_main_process():
            return
        for sample in outputs:
            turn, rest = divmod(self.seen, self.interval)
            if rest == 0 and turn < self.max_images:
                self._show(runner, sample, mode)
            self.seen += 1

    def _show(self, runner: Runner, sample: BaseDataElement, mode: str) -> None:
        visualizer, name = runner.visualizer, Path(sample.img_path).stem
        # asked for its iteration, a runner that only evaluates would build all that training needs
        training = isinstance(runner._train_loop, BaseLoop)
        step = runner.iter if training else 0
        when = f' at iteration {step:,}' if training else ''
        title = f'{name}{when}: errors near boundaries'
        figure = sample_figure(sample, visualizer.dataset_meta, title, **self.options)
        visualizer.add_image(f'{mode}_boundary_{name}', render(figure), step)


def sample_figure(
    sample: BaseDataElement,
    dataset_meta: Mapping[str, Any],
    title: str,
    width: int | float = 3,
    ignore_index: int = 255,
    backend_args: dict[str, Any] | None = None,
) -> Figure:
    """`error_figure` of what a model of mmseg returned for an image.

    Args:
        sample: with ``img_path``, ``pred_sem_seg`` and ``gt_sem_seg`` (1,H,W), of the size of the
            image file.
        dataset_meta: with ``classes`` and, if the dataset has any, ``palette``.
        title: what is shown.
        width: of the band around true boundaries.
        ignore_index: true label of pixels that do not count.
        backend_args: by which the image file is read.
    """
    truth, prediction = (label_map(sample, key) for key in ('gt_sem_seg', 'pred_sem_seg'))
    return error_figure(
        read_image(sample.img_path, backend_args),
        truth,
        prediction,
        dataset_meta['classes'],
        dataset_meta.get('palette'),
        width,
        title,
        ignore_index,
    )


def read_image(path: str, backend_args: dict[str, Any] | None = None) -> np.ndarray:
    """The pixels of an image file (H,W,3), RGB."""
    data = np.frombuffer(get(path, backend_args), np.uint8)
    image = cv2.imdecode(data, cv2.IMREAD_COLOR)
    if image is None:
        raise ValueError(f'{path} is not an image that OpenCV can read')
    return cv2.cvtColor(image, cv2.COLOR_BGR2RGB)


def label_map(sample: BaseDataElement, key: str) -> np.ndarray:
    """A label map (H,W) of a sample."""
    if key not in sample:
        raise NoLabelsError(f'There is no {key} of image {sample.img_path}: {MISSING[key]}.')
    return sample.get(key).data.cpu().numpy()[0]
