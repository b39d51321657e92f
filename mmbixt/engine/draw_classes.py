"""Pictures of images with their true and predicted classes."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper
from mmengine.runner import Runner

from mmbixt.registry import HOOKS

SIDE = 448  # shortest side of a picture in pixels, so that the names can be read


@HOOKS.register_module()
class DrawClassesHook(Hook):
    """Draw each test image of a classifier, as the model gets it, with its classes.

    mmpretrain's ``VisualizationHook`` draws images of OpenCV with red and blue exchanged, and gives
    images of the same name, in the folders of their classes, one file.

    Args:
        out_dir: folder of the pictures, FOLDER_NAME.png for an image FOLDER/NAME, with a number if
            there are several; None writes none.
        show: show each picture in a window.
        wait_time: for how many seconds.
    """

    def __init__(
        self, out_dir: str | None = None, show: bool = False, wait_time: float = 0.0
    ) -> None:
        self.out_dir = out_dir
        self.window = dict(show=show, wait_time=wait_time)
        self.count = 0
        self.names: Counter[str] = Counter()

    def after_test_iter(
        self, runner: Runner, batch_idx: int, data_batch: dict, outputs: Sequence[Any]
    ) -> None:
        model = runner.model.module if is_model_wrapper(runner.model) else runner.model
        for image, sample in zip(data_batch['inputs'], outputs, strict=True):
            pixels = image.permute(1, 2, 0).cpu().numpy().astype('uint8')
            if 'img_path' in sample or getattr(model.data_preprocessor, 'to_rgb', False):
                pixels = pixels[..., ::-1]  # read by OpenCV
            path = Path(sample.get('img_path', str(sample.get('sample_idx', self.count))))
            name = f'{path.parent.name}_{path.name}'.lstrip('_')
            self.names[name] += 1
            if self.names[name] > 1:
                name += f'_{self.names[name]}'
            file = f'{self.out_dir}/{name}.png' if self.out_dir else None
            options = dict(resize=max(SIDE, min(pixels.shape[:2])), step=self.count, **self.window)
            runner.visualizer.visualize_cls(
                pixels.copy(), sample, out_file=file, name=name, **options
            )
            self.count += 1
