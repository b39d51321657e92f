"""Pictures of errors near boundaries, drawn during validation and testing."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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
from mmbixt.visualization.images import decode_rgb

MISSING = {
    'gt_sem_seg': 'the dataset has no true labels, or its pipeline does not load them '
    '(LoadAnnotations); errors cannot be drawn without them',
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
    step is the training iteration, or 0 when a model is only evaluated. With several processes,
    rank 0 draws, from the images that it evaluates.

    Args:
        draw: False turns the hook off.
        interval: draw every ``interval``-th image of an evaluation, starting with the first.
        max_images: largest number of pictures of one evaluation.
        width: width of the band around true boundaries, in pixels (int) or as a fraction of the
            image's diagonal (float below 1).
        ignore_index: true label of pixels that do not count.
        backend_args: file backend for reading images, as in ``LoadImageFromFile``.

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
        band_pixels(width, (1, 1))  # raises for a wrong width now, not after the first epoch
        self.draw = draw
        self.interval = interval
        self.max_images = max_images
        self.options = dict(width=width, ignore_index=ignore_index, backend_args=backend_args)
        self.seen = 0  # images of this evaluation

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
        """Draw every ``interval``-th of the samples ``outputs``, for any batch size."""
        if mode == 'train' or not self.draw or not is_main_process():
            return
        for sample in outputs:
            count, rest = divmod(self.seen, self.interval)
            if rest == 0 and count < self.max_images:
                self._add_picture(runner, sample, mode)
            self.seen += 1

    def _add_picture(self, runner: Runner, sample: BaseDataElement, mode: str) -> None:
        visualizer, name = runner.visualizer, Path(sample.img_path).stem
        # without this test `runner.iter` would build the training of a run that only evaluates
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
    """`error_figure` of one image; ``width`` and the rest as for :class:`BoundaryVisHook`.

    Args:
        sample: with ``img_path``, ``pred_sem_seg`` and ``gt_sem_seg`` (1,H,W), of the size of the
            image file.
        dataset_meta: with ``classes`` and, if the dataset has one, ``palette``.
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
    image = decode_rgb(data)
    if image is None:
        raise ValueError(f'{path} is not an image that OpenCV can read')
    return image


def label_map(sample: BaseDataElement, key: str) -> np.ndarray:
    """A label map (H,W) of a sample."""
    if key not in sample:
        raise NoLabelsError(f'{sample.img_path} has no {key}: {MISSING[key]}.')
    return sample.get(key).data.cpu().numpy()[0]
