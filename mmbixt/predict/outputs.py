"""What tools/predict.py writes for each image, by the framework of the model.

``ends`` are added to the path of an image in the folder of results; ``file`` is for all images.
Detectors and classifiers run in the inferencers of mmdet and mmpretrain.
"""

import json
from argparse import Namespace
from pathlib import Path

import mmcv
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from mmengine.config import Config
from PIL import Image

import mmbixt.registry  # noqa: F401  mmengine then reads its own checkpoints
from mmbixt.checkpoints.loader import load
from mmbixt.checkpoints.state_dict import load_whole_state
from mmbixt.predict.predictor import Predictor
from mmbixt.visualization.images import as_rgb
from mmbixt.visualization.palette import distinct_palette


class Segmentation:
    """Labels as PNG, with a palette or, of more than 256 classes, 16 bits; overlays on request."""

    file, ends = None, ('.png', '_overlay.jpg', '_probability.png')

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
            Image.blend(Image.fromarray(as_rgb(photo)), colours, 0.5).save(f'{out}_overlay.jpg')


class Detector:
    """Pictures, and boxes, scores and masks in COCO's form; a category's id is its label + 1."""

    file, ends = 'predictions.json', ('.jpg',)

    def __init__(self, config: Config, args: Namespace) -> None:
        from mmdet.apis import DetInferencer

        self.detect = DetInferencer(config, args.checkpoint, args.device, show_progress=False)
        load_whole_state(self.detect.model, load(args.checkpoint, 'cpu'))
        self.images, self.found = [], []

    def __call__(self, path: Path, out: Path, name: Path) -> None:
        result = self.detect(str(path), return_vis=True)
        [found], [picture] = result['predictions'], result['visualization']
        mmcv.imwrite(picture[..., ::-1], f'{out}.jpg')
        number, (height, width) = len(self.images) + 1, picture.shape[:2]
        about = dict(id=number, file_name=str(name), width=width, height=height)
        self.images.append(about)
        for i, (x, y, right, bottom) in enumerate(found['bboxes']):
            one = dict(image_id=number, category_id=found['labels'][i] + 1)
            one |= dict(score=found['scores'][i], bbox=[x, y, right - x, bottom - y])
            if 'masks' in found:
                one['segmentation'] = found['masks'][i]  # RLE
            self.found.append(one)

    def text(self) -> str:
        """The content of the file."""
        classes = self.detect.model.dataset_meta['classes']
        categories = [dict(id=i + 1, name=name) for i, name in enumerate(classes)]
        return json.dumps(dict(images=self.images, annotations=self.found, categories=categories))


class Classifier:
    """Pictures, and a line of JSON for each image: its label, score and the name of the class."""

    file, ends = 'predictions.jsonl', ('.png',)

    def __init__(self, config: Config, args: Namespace) -> None:
        from mmpretrain import ImageClassificationInferencer
        from mmpretrain.visualization import UniversalVisualizer

        self.classify = ImageClassificationInferencer(config, args.checkpoint, args.device)
        load_whole_state(self.classify.model, load(args.checkpoint, 'cpu'))
        self.visualizer, self.lines = UniversalVisualizer(), []

    def __call__(self, path: Path, out: Path, name: Path) -> None:
        [data] = self.classify.preprocess([str(path)])
        [sample] = self.classify.forward(data)
        picture, classes = mmcv.imread(path, channel_order='rgb'), self.classify.classes
        options = dict(draw_gt=False, out_file=f'{out}.png')
        self.visualizer.visualize_cls(picture, sample, classes, **options)
        [result] = self.classify.postprocess([sample], [])
        del result['pred_scores']
        self.lines.append(json.dumps(dict(image=str(name), **result)) + '\n')

    def text(self) -> str:
        """The content of the file."""
        return ''.join(self.lines)
