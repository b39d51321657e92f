"""Pictures of errors near boundaries, drawn during validation and testing."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mmengine.dist import is_main_process
from mmengine.hooks import Hook
from mmengine.runner import Runner
from mmengine.structures import BaseDataElement

from mmbixt.evaluation.boundary import band_pixels
from mmbixt.registry import HOOKS
from mmbixt.visualization.boundary_errors import render
from mmbixt.visualization.samples import sample_figure


@HOOKS.register_module()
class BoundaryVisHook(Hook):
    """Draw where the predictions of mmseg's models are wrong near boundaries.

    The pictures go to all ``vis_backends`` of the config's visualizer: files in
    ``TIMESTAMP/vis_data/vis_image``, TensorBoard, W&B ... They are called ``val_boundary_IMAGE`` or
    ``test_boundary_IMAGE``; their step is the training iteration, or 0 when a model is only
    evaluated. With several processes, rank 0 draws some of the images that it evaluates.

    Args:
        interval: draw every ``interval``-th image of an evaluation, starting with the first.
        max_images: largest number of pictures of one evaluation.
        width: width of the band around true boundaries, in pixels (int) or as a fraction of the
            image's diagonal (float below 1).
        ignore_index: true label of pixels that do not count.

    Example:
        >>> custom_hooks = [dict(type='mmbixt.BoundaryVisHook', interval=100)]
    """

    def __init__(
        self,
        interval: int = 50,
        max_images: int = 10,
        width: int | float = 3,
        ignore_index: int = 255,
    ) -> None:
        band_pixels(width, (1, 1))  # raises for a wrong width now, not after the first epoch
        self.interval, self.max_images = interval, max_images
        self.options = dict(width=width, ignore_index=ignore_index)
        self.seen = 0  # images of this evaluation
        self.is_training = False  # outside training, `runner.iter` would build the training loop

    def before_train(self, runner: Runner) -> None:
        self.is_training = True

    def before_val_epoch(self, runner: Runner) -> None:
        self.seen = 0

    def before_test_epoch(self, runner: Runner) -> None:
        self.seen = 0

    def after_val_iter(
        self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: Sequence = ()
    ) -> None:
        self._add_pictures(runner, outputs, 'val')

    def after_test_iter(
        self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: Sequence = ()
    ) -> None:
        self._add_pictures(runner, outputs, 'test')

    def _add_pictures(self, runner: Runner, samples: Sequence[BaseDataElement], mode: str) -> None:
        """Draw every ``interval``-th of the samples, for any batch size."""
        if not is_main_process():
            return
        for sample in samples:
            drawn, remainder = divmod(self.seen, self.interval)
            self.seen += 1
            if remainder > 0 or drawn >= self.max_images:
                continue
            name, step = Path(sample.img_path).stem, runner.iter if self.is_training else 0
            title = f'{name}: errors near boundaries'
            if self.is_training:
                title = f'{name} at iteration {step:,}: errors near boundaries'
            meta = runner.visualizer.dataset_meta
            figure = sample_figure(sample, meta, title, **self.options)
            runner.visualizer.add_image(f'{mode}_boundary_{name}', render(figure), step)
