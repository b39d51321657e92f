"""What tools/predict.py writes for each image, by the framework of the model.

``ends`` are added to the path of an image in the folder of results; ``files`` are of all images.
"""

import json
from argparse import Namespace
from contextlib import suppress
from itertools import count
from pathlib import Path
from textwrap import fill

import mmcv
import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from mmengine.config import Config
from mmengine.dataset import Compose, pseudo_collate
from mmengine.device import get_device
from mmengine.registry import DATASETS
from mmengine.structures import BaseDataElement
from PIL import Image

from mmbixt.check.mistakes import dataset_problems
from mmbixt.config import ConfigError, test_set
from mmbixt.predict.predictor import Predictor
from mmbixt.predict.trained import load_trained
from mmbixt.visualization.palette import distinct_palette


class SegmentationOutput:
    """Labels as PNG, with a palette or, of more than 256 classes, 16 bits; overlays on request."""

    files, ends = (), ('.png', '_overlay.jpg', '_probability.png')

    def __init__(self, config: Config, args: Namespace) -> None:
        names = 'scale', 'short_side', 'tile', 'overlap', 'batch', 'whole', 'device', 'amp'
        options = {name: getattr(args, name) for name in names}
        self.predictor, self.args = Predictor(config, args.checkpoint, **options), args
        meta = self.predictor.meta
        self.palette = np.uint8(meta.get('palette') or distinct_palette(len(meta['classes'])))
        if args.overlay:
            args.out.mkdir(parents=True, exist_ok=True)
            self.draw_legend().savefig(args.out / 'legend.png', bbox_inches='tight')

    def draw_legend(self) -> Figure:
        """The colours of the classes."""
        pairs = zip(self.palette / 255, self.predictor.meta['classes'], strict=False)
        handles = [Patch(facecolor=colour, edgecolor='0.3', label=name) for colour, name in pairs]
        figure = Figure()
        figure.legend(handles=handles, ncols=-(-len(handles) // 25), loc='center', frameon=False)
        return figure

    def __call__(self, path: Path, out: Path, name: Path) -> None:
        photo = self.predictor.read(path)
        if self.args.probabilities:
            labels, probabilities = self.predictor.predict(photo)
            Image.fromarray(probabilities).save(f'{out}_probability.png')
        else:
            labels = self.predictor(photo)
        picture = Image.fromarray(labels)
        if labels.dtype == np.uint8:
            picture.putpalette(self.palette.tobytes())
        picture.save(f'{out}.png')
        if self.args.overlay:
            colours = Image.fromarray(self.palette[labels])
            picture = Image.fromarray(self.predictor.picture(photo))
            Image.blend(picture, colours, 0.5).save(f'{out}_overlay.jpg')


class Inference:
    """A detector or a classifier with the weights of a checkpoint, and its test pipeline."""

    def __init__(self, config: Config, args: Namespace) -> None:
        model, self.meta = load_trained(config, args.checkpoint)
        self.model = model.to(args.device or get_device())
        self.pipeline = Compose(test_set(config).pipeline)

    @torch.no_grad()
    def infer(self, path: Path) -> tuple[BaseDataElement, np.ndarray]:
        """What is found, on the CPU, and pixels (H,W,3) in RGB, as CIFAR's pipeline gets them."""
        picture = mmcv.imread(path, channel_order='rgb')
        about = dict(img=picture, img_shape=picture.shape[:2], ori_shape=picture.shape[:2])
        data = self.pipeline(dict(about, img_path=str(path), img_id=0))
        [sample] = self.model.test_step(pseudo_collate([data]))
        return sample.cpu(), picture


class DetectionOutput(Inference):
    """Pictures, and two files in COCO's forms: the results, and the images and categories."""

    files, ends = ('predictions.json', 'images.json'), ('.jpg',)

    def __init__(self, config: Config, args: Namespace) -> None:
        from mmdet.visualization import DetLocalVisualizer

        super().__init__(config, args)
        self.visualizer, self.score = DetLocalVisualizer(), args.score
        self.visualizer.dataset_meta = self.meta
        self.images, self.found, self.best, dataset = [], [], [], None
        self.ids, self.category_ids = {}, range(1, len(self.meta['classes']) + 1)
        with suppress(FileNotFoundError):  # the annotations of the test data may not be here
            dataset = DATASETS.build({**test_set(config), 'pipeline': [], 'test_mode': True})
        if hasattr(dataset, 'cat_ids'):
            if problems := [*dataset_problems(dataset)]:
                raise ConfigError('\n'.join(problems))
            self.category_ids = dataset.cat_ids
            for image in map(dataset.get_data_info, range(len(dataset))):
                self.ids[Path(image['img_path']).resolve()] = image['img_id']
        self.new_ids = count(max(self.ids.values(), default=0) + 1)

    def __call__(self, path: Path, out: Path, name: Path) -> None:
        from mmdet.structures.mask import encode_mask_results, mask2bbox

        sample, picture = self.infer(path)
        options = dict(draw_gt=False, pred_score_thr=self.score, out_file=f'{out}.jpg')
        self.visualizer.add_datasample('', picture, sample, **options)
        found, (height, width), file = sample.pred_instances, picture.shape[:2], path.resolve()
        number = self.ids[file] if file in self.ids else next(self.new_ids)
        self.images.append(dict(id=number, file_name=str(name), width=width, height=height))
        self.best.append(max(found.scores.tolist(), default=0))
        if 'masks' in found and not found.bboxes.any():  # a method without boxes
            found.bboxes = mask2bbox(found.masks)
        for i, (x, y, right, bottom) in enumerate(found.bboxes.tolist()):
            score, category = float(found.scores[i]), self.category_ids[int(found.labels[i])]
            one = dict(image_id=number, category_id=category, score=score)
            one['bbox'] = [x, y, right - x, bottom - y]
            if 'masks' in found:
                [mask] = encode_mask_results(found.masks[i : i + 1].numpy())
                one['segmentation'] = dict(mask, counts=mask['counts'].decode())
            self.found.append(one)

    def finish(self, out: Path) -> None:
        """Write the files, and say how many pictures show nothing."""
        names = zip(self.category_ids, self.meta['classes'], strict=True)
        about = dict(images=self.images, categories=[dict(id=i, name=name) for i, name in names])
        (out / 'predictions.json').write_text(json.dumps(self.found))
        (out / 'images.json').write_text(json.dumps(about))
        if bare := [best for best in self.best if best <= self.score]:
            text = f'no object above {self.score:g} in {len(bare)} of {len(self.best)} images;'
            print(text, f'the best there has {max(bare):.2f}: --score')


class ClassificationOutput(Inference):
    """Pictures, and a line of JSON for each image: its label, score and the name of the class."""

    files, ends = ('predictions.jsonl',), ('.png',)

    def __init__(self, config: Config, args: Namespace) -> None:
        from mmpretrain.visualization import UniversalVisualizer

        super().__init__(config, args)
        self.visualizer, self.file = UniversalVisualizer(), args.out / self.files[0]

    def __call__(self, path: Path, out: Path, name: Path) -> None:
        (sample, picture), classes = self.infer(path), self.meta.get('classes')
        side = max(448, min(picture.shape[:2]))  # so that a line of 72 letters fits
        names = classes and [fill(name, 50) for name in classes]
        options = dict(draw_gt=False, resize=side, text_cfg=dict(size=side / 64))
        self.visualizer.visualize_cls(picture, sample, names, **options, out_file=f'{out}.png')
        score, label = sample.pred_score.max(0)
        result = dict(image=str(name), pred_label=int(label), pred_score=float(score))
        result |= dict(pred_class=classes[label]) if classes else {}
        with self.file.open('a') as file:
            file.write(json.dumps(result) + '\n')
