"""``--sample``: change a config to a short run on generated scenes or shapes, for a laptop."""

from pathlib import Path
from typing import Any

from mmengine.config import Config, ConfigDict

from mmbixt.config import ConfigError, all_dicts, type_name, within
from mmbixt.sample.sample_data import write_sample_data

# folders of write_sample_data for the stock dataset classes of each framework
_FOLDERS = {
    'mmseg': dict(ADE20KDataset='ade/ADEChallengeData2016'),
    'mmdet': dict(CocoDataset='coco/'),
    'mmpretrain': dict(ImageNet='imagenet', CIFAR100='imagenet'),  # CIFAR100 becomes ImageNet
}
_SIZE_KEYS = {'scale', 'scales', 'crop_size', 'size', 'img_scale', 'stride', 'random_size_range'}
# iterations in all, between validations, of warm-up, and that averaged weights (EMA) cover
ITERATIONS, INTERVAL, WARM_UP, AVERAGED = 700, 175, 50, 100
POINTS = 256  # of a shape
_SHAPES = {'ModelNet40', 'ShapeNetPart'}  # data sets of points


def use_sample_data(cfg: Config, root: str = 'data/sample') -> list[str]:
    """Change a config of ADE20K, COCO, ImageNet, CIFAR-100 or of points in place.

    It changes as little as possible. The scenes are written to ``root`` unless they exist. Returns
    a line for each change.
    """
    scope, datasets = cfg.get('default_scope'), _dataset_names(cfg)
    if datasets and datasets <= _SHAPES:
        return _use_sample_shapes(cfg)
    folders = _FOLDERS.get(scope, {})
    if not datasets or datasets - {*folders}:
        known = '; '.join(f'{name}: {", ".join(kinds)}' for name, kinds in _FOLDERS.items())
        raise ConfigError(
            f'--sample has scenes for the datasets of {known}. This config has '
            f'{", ".join(sorted(datasets)) or "no dataset"} of {scope}.'
        )
    done = _replace_parts(cfg, write_sample_data(root), folders)
    # crops of 224 pixels become 112, and of 512 become 128; ADE20K's 512 for the short side of an
    # image become 192, that of the scenes
    factor, batch_size = (2, 8) if scope == 'mmpretrain' else (4, 4)
    image_factor = 8 / 3 if scope == 'mmseg' else factor
    _shrink_images(cfg, factor, image_factor)
    done['sizes'] = f'crops and padding divided by {factor}, images by {image_factor:.2g}'
    done['sizes'] += '; ratio_range, where there is one, (1.0, 1.25)'
    done['schedule'] = _shorten(cfg, batch_size)
    done['weights'] = _remove_weights(cfg)
    return [f'{what}: {change}' for what, change in done.items() if change]


def _use_sample_shapes(cfg: Config) -> list[str]:
    for node in all_dicts(*cfg.values()):
        if 'data_root' in node:
            del node['data_root']
            node.pop('form', None)
            node.update(type='mmbixt.SampleShapes', num_points=POINTS)
        elif 'num_points' in node:
            node.num_points = POINTS
        if 'num_workers' in node:
            node.update(num_workers=1, persistent_workers=True)
    done = dict(data=f'generated planes, tables and lamps of {POINTS} points')
    done['schedule'] = _shorten(cfg, 8)
    done['weights'] = _remove_weights(cfg)
    return [f'{what}: {change}' for what, change in done.items() if change]


def _dataset_names(cfg: Config) -> set[str]:
    loaders = (part for key, part in cfg.items() if key.endswith('_dataloader'))
    kinds = {type_name(node) for node in all_dicts(*loaders) if 'data_root' in node}
    return {kind.rpartition('.')[2] for kind in kinds}


def _replace_parts(cfg: Config, root: Path, folders: dict[str, str]) -> dict[str, str | None]:
    """Change what depends on data, sizes of images or the length of training, wherever it is."""
    done = {'data': f'generated scenes in {root}'}
    for node in all_dicts(*cfg.values()):
        kind = type_name(node).rpartition('.')[2]
        if 'data_root' in node:
            node.data_root = str(root / folders[kind])
        elif 'ann_file' in node:  # of a metric
            node.ann_file = str(root / 'coco/annotations' / Path(node.ann_file).name)
        if kind == 'CIFAR100':  # its class refuses other files
            node.update(type='ImageNet', split=dict(train='train', test='val')[node.split])
            node.pipeline = [dict(type='LoadImageFromFile'), *node.pipeline]
            cfg.data_preprocessor.update(num_classes=1000, to_rgb=True)
            cfg.model.head.num_classes = 1000
            done['classes'] = 'the 1000 of ImageNet, because CIFAR-100 lacks classes of the scenes'
        if kind.endswith('EMAHook'):  # the average is evaluated, and must not stay near the start
            node.update(momentum=1 / AVERAGED, begin_epoch=0, begin_iter=0)
            done['average'] = f'of the weights of about {AVERAGED} iterations'
        if 'num_workers' in node:
            node.update(num_workers=1, persistent_workers=True)
        if node.get('num_regions') == 16:  # of BiFormer for detection: too many for small maps
            node.num_regions = 8
            done['regions'] = 'half as many per side of a feature map'
    return done


def _shrink_images(cfg: Config, factor: float, image_factor: float) -> None:
    def shrink(value: Any, by: float = factor) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(shrink(x, by) for x in value)
        return max(32, round(value / by)) if isinstance(value, int) else value

    # in a model, other things have sizes, such as anchors
    outside = [cfg[key] for key in cfg if key != 'model']
    for node in all_dicts(*outside, cfg.model.get('data_preprocessor'), cfg.model.get('test_cfg')):
        for key in _SIZE_KEYS & node.keys():
            node[key] = shrink(node[key], image_factor if 'scale' in key else factor)
        if 'ratio_range' in node:
            node.ratio_range = (1.0, 1.25)
    backbone = within(cfg, 'model', 'backbone')
    if 'img_size' in backbone:  # networks for images of one size
        backbone.img_size = shrink(backbone.img_size)


def _shorten(cfg: Config, batch_size: int) -> str:
    cfg.train_dataloader.batch_size = batch_size
    cfg.train_cfg = dict(type='IterBasedTrainLoop', max_iters=ITERATIONS, val_interval=INTERVAL)
    cfg.setdefault('log_processor', ConfigDict()).by_epoch = False
    cfg.default_hooks.checkpoint.update(by_epoch=False, interval=2 * INTERVAL)
    cfg.default_hooks.logger.update(interval=10)
    optimizer = cfg.optim_wrapper.optimizer
    if type_name(optimizer) == 'SGD':  # in proportion to the batch size
        optimizer.lr *= batch_size / cfg.get('auto_scale_lr', {}).get('base_batch_size', 16)
    else:  # LAMB's steps are relative to the weights
        optimizer.lr = 1e-2 if optimizer.type == 'Lamb' else 1e-3
    cfg.param_scheduler = [
        dict(type='LinearLR', start_factor=1e-3, by_epoch=False, begin=0, end=WARM_UP),
        dict(type='PolyLR', eta_min=0.0, by_epoch=False, begin=WARM_UP, end=ITERATIONS),
    ]
    run = (
        f'{ITERATIONS} iterations of batches of {batch_size} in each process, with two checkpoints'
    )
    return f'{run}, learning rate {optimizer.lr} after {WARM_UP} iterations of warm-up'


def _remove_weights(cfg: Config) -> str | None:
    removed = [cfg.load_from] if cfg.get('load_from') else []
    cfg.load_from = None
    for node in all_dicts(cfg.model):
        for key in ('init_cfg', 'pretrained'):
            value = node.get(key)  # a file, or how to begin, which may be a list
            value = value.get('checkpoint') if isinstance(value, dict) else value
            if isinstance(value, str):
                removed.append(value)
                node[key] = None
    if teacher := cfg.model.get('teacher'):
        removed.append(teacher if isinstance(teacher, str) else teacher['model_name'])
        cfg.model.teacher = dict(model_name='test_resnet', num_classes=cfg.model.head.num_classes)
    if not removed:
        return None
    for node in all_dicts(cfg.model):  # random weights must not be frozen
        node.update({k: v for k, v in dict(frozen_stages=-1, norm_eval=False).items() if k in node})
    return f'random instead of {", ".join(removed)}, and nothing frozen'
