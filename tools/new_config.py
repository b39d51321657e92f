"""Write a config for your own images: a beginning that trains, to read and to change.

It looks at images and label maps with the same names (for a segmentor), at a file in COCO's format
(for a detector), or at a folder of images for each class (for a classifier), and prints what it
sees and chooses.
"""

import argparse
import json
import random
import re
from collections import Counter
from os.path import commonprefix
from pathlib import Path

import numpy as np
from mmengine.config import Config
from mmengine.fileio import load
from PIL import Image

from mmbixt.cli import run
from mmbixt.config import CONFIGS, ConfigError, config_files, read_config
from mmbixt.evaluation.folders import read_class_file, read_classes, read_labels
from mmbixt.predict.files import SUFFIXES
from mmbixt.visualization.palette import distinct_palette

IGNORED = 255
READ = 1000  # most images and labels that are read, evenly chosen
BATCH, BATCH_OF_CLASSES = 8, 16  # images of a segmentor, and of a classifier
HEAD = """\
# Written by tools/new_config.py. Paths begin in the folder where a command runs.
_base_ = 'mmbixt::{family}/{name}.py'

classes = {classes}
"""
SEGMENTOR = """
palette = {palette}
scale, crop_size = {scale}, ({crop}, {crop})
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations'),
    dict(type='mmbixt.CheckSample', num_classes=len(classes)),  # names a file that is wrong
    dict(type='RandomResize', scale=scale, ratio_range=(0.75, 1.5), keep_ratio=True),
    dict(type='RandomCrop', crop_size=crop_size, cat_max_ratio=0.75),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PhotoMetricDistortion'),
    dict(type='PackSegInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=scale, keep_ratio=True),
    dict(type='LoadAnnotations'),
    dict(type='mmbixt.CheckSample', num_classes=len(classes)),
    dict(type='PackSegInputs'),
]
tta_pipeline = _base_.tta_pipeline
tta_pipeline[1].transforms[0] = [
    dict(type='Resize', scale=(int(scale[0] * r), int(scale[1] * r)), keep_ratio=True)
    for r in _base_.img_ratios
]
data = dict(
    _delete_=True,  # without the settings of ADE20K
    type='BaseSegDataset',
    img_suffix={suffixes[0]!r},
    seg_map_suffix={suffixes[1]!r},
    reduce_zero_label={reduce},  # True: 0 does not count, and classes start at 1
    metainfo=dict(classes=classes, palette=palette),
)
train_dataloader = dict(
    batch_size={batch},
    dataset=dict(
        data_prefix=dict(img_path={train[0]!r}, seg_map_path={train[1]!r}),
        ann_file={train[2]!r},  # '': all images of the folder
        pipeline=train_pipeline,
        **data,
    ),
)
val_dataloader = dict(
    dataset=dict(
        data_prefix=dict(img_path={val[0]!r}, seg_map_path={val[1]!r}),
        ann_file={val[2]!r},
        pipeline=test_pipeline,
        **data,
    ),
)
test_dataloader = val_dataloader
val_evaluator = [
    dict(type='IoUMetric', iou_metrics=['mIoU']),
    dict(type='mmbixt.BoundaryIoUMetric'),
]
test_evaluator = val_evaluator

weights = {weights}
model = dict(
    data_preprocessor=dict(size=crop_size),
    # for rare classes add loss_decode=dict(class_weight=weights, reduction='none')
    decode_head=dict(num_classes=len(classes)),{auxiliary}
)

iterations = {iterations}  # {epochs} epochs
warm_up, interval = max(2, iterations // 20), max(1, iterations // 8)
optim_wrapper = dict(optimizer=dict(lr=1e-4))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-6, by_epoch=False, begin=0, end=warm_up),
    dict(type='PolyLR', eta_min=0.0, power=1.0, by_epoch=False, begin=warm_up, end=iterations),
]
train_cfg = dict(max_iters=iterations, val_interval=interval)
default_hooks = dict(checkpoint=dict(interval=interval))
"""
DETECTOR = """
scale = (1333, 800)  # the most pixels of the long and of the short side; smaller is faster
resize = dict(type='RandomResize', scale=scale, ratio_range=(0.6, 1.0), keep_ratio=True)
crop = dict(
    type='RandomCrop',
    crop_type='relative_range',
    crop_size=(0.6, 0.6),
    allow_negative_crop=True,
)
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True, with_mask={masks}),
    dict(type='mmbixt.CheckSample'),
    dict(type='RandomFlip', prob=0.5),
    dict(type='RandomChoice', transforms=[[resize], [crop, resize]]),
    dict(type='PackDetInputs'),
]
test_pipeline = _base_.test_pipeline
test_pipeline[1].scale = scale
data = dict(data_root='', metainfo=dict(classes=classes{palette}))
train_dataloader = dict(
    batch_size=2,
    dataset=dict(
        data_prefix=dict(img={train[0]!r}),
        ann_file={train[1]!r},
        pipeline=train_pipeline,
        **data,
    ),
)
val_dataloader = dict(
    dataset=dict(
        data_prefix=dict(img={val[0]!r}),
        ann_file={val[1]!r},
        pipeline=test_pipeline,
        **data,
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict({metric}ann_file={val[1]!r})
test_evaluator = val_evaluator

model = dict({heads})

epochs = {epochs}
warm_up = max(2, min(500, epochs * {steps} // 20))  # iterations, of {steps} an epoch
milestones = [max(1, epochs * i // 12) for i in (8, 11)]
optim_wrapper = dict(optimizer=dict(lr=5e-5))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.001, by_epoch=False, begin=0, end=warm_up),
    dict(type='MultiStepLR', begin=0, end=epochs, milestones=milestones, gamma=0.1),
]
train_cfg = dict(max_epochs=epochs, val_interval=max(1, epochs // 10))
default_hooks = dict(logger=dict(interval={log}))  # iterations
"""
CLASSIFIER = """
crop = {crop}  # pixels of both sides; smaller is faster
train_pipeline, test_pipeline = _base_.train_pipeline, _base_.test_pipeline
train_pipeline[1].scale = crop
test_pipeline[1].scale, test_pipeline[2].crop_size = round(crop * {edge}), crop
data = dict(_delete_=True, type='CustomDataset', metainfo=dict(classes=classes))
train_dataloader = dict(
    batch_size={batch},
    drop_last=False,
    # for ImageNet it repeats images in a batch, and leaves two thirds of them out of an epoch
    sampler=dict(_delete_=True, type='DefaultSampler', shuffle=True),
    dataset=dict({train}, pipeline=train_pipeline, **data),
)
val_dataloader = dict(
    batch_size={batch},
    dataset=dict({val}, pipeline=test_pipeline, **data),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='Accuracy', topk=(1,))
test_evaluator = val_evaluator
data_preprocessor = dict(num_classes=len(classes))

weights = {weights}
model = dict({parts}
    head=dict(num_classes=len(classes){loss}),
)

epochs = {epochs}
warm_up = max(2, epochs * {steps} // 20)  # iterations, of {steps} an epoch
optim_wrapper = dict(optimizer=dict(_delete_=True, type='AdamW', lr={rate}, weight_decay=0.05))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.001, by_epoch=False, end=warm_up),
    dict(type='CosineAnnealingLR', end=epochs, convert_to_iter_based=True),
]
train_cfg = dict(max_epochs=epochs, val_interval=max(1, epochs // 10))
default_hooks = dict(logger=dict(interval={log}))  # iterations
"""


def parse_args() -> argparse.Namespace:
    epilog = 'Example: python tools/new_config.py --images photos --labels labels '
    epilog += '--classes classes.txt --like semfpn_xcit_s12_p16_ade20k --out my.py'
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, epilog=epilog
    )
    add, labels = parser.add_argument, parser.add_mutually_exclusive_group()
    add('--images', type=Path, required=True, metavar='DIR')
    labels.add_argument('--labels', type=Path, metavar='DIR', help='label maps')
    labels.add_argument('--annotations', type=Path, metavar='FILE', help="in COCO's format")
    text = 'a name per line, in the order of the ids; with --annotations: those to learn (all)'
    add('--classes', metavar='FILE', help=text)
    add('--val-images', type=Path, metavar='DIR', help='for validation')
    add('--val-labels', type=Path, metavar='DIR')
    add('--val-annotations', type=Path, metavar='FILE')
    text = 'without them: the share of the images to take, at random (default: 0.1)'
    add('--split', type=float, default=0.1, metavar='SHARE', help=text)
    text = 'in the label maps 0 does not count, and classes start at 1'
    add('--reduce-zero-label', action='store_true', help=text)
    add('--like', required=True, metavar='NAME', help="of the config of mmbixt's to start from")
    add('--out', type=Path, required=True, metavar='FILE.py')
    args = parser.parse_args(namespace=argparse.Namespace(files={}))
    if not (args.labels or args.annotations):
        if args.classes or args.val_labels or args.val_annotations:
            parser.error('without --labels or --annotations the folders in --images are classes')
    elif (args.val_images is None) != ((args.val_labels or args.val_annotations) is None):
        parser.error('--val-images needs --val-labels or --val-annotations, and they need it')
    if args.labels and not args.classes:
        parser.error('--labels needs --classes')
    return args


def files_of(folder: Path) -> list[str]:
    """The images in a folder and its subfolders, of one suffix, as mmseg reads them."""
    files = (x.relative_to(folder) for x in folder.rglob('*') if x.suffix.lower() in SUFFIXES)
    files = sorted(x.as_posix() for x in files if not x.name.startswith('.'))
    counts = Counter(Path(name).suffix for name in files)
    if len(counts) != 1:
        found = ', '.join(f'{n:,} {suffix}' for suffix, n in counts.items()) or 'no images'
        raise ConfigError(f'{folder} has {found}. mmseg reads one suffix: convert the others.')
    return files


def common_ending(files: list[str]) -> str:
    """What all names end with, from its first _, - or . on, such as _leftImg8bit.png."""
    shared = commonprefix([name[::-1] for name in files])[::-1]  # noqa: RUF071 (not folders)
    return re.sub(r'^[^_.-]*', '', shared)


def pair(images: Path, labels: Path) -> tuple[list[str], list[str]]:
    """Names of images without their suffix; the suffixes of images and of label maps."""
    folders = files_of(images), files_of(labels)
    for suffix_of in (lambda files: Path(files[0]).suffix, common_ending):
        suffixes = [suffix_of(files) for files in folders]
        stems = [name.removesuffix(suffixes[0]) for name in folders[0]]
        missing = {*stems} - {name.removesuffix(suffixes[1]) for name in folders[1]}
        if not missing:
            return stems, suffixes
    label = labels / f'{min(missing)}{suffixes[1]}'
    raise ConfigError(f'{len(missing):,} images have no label: there is no {label}, for example.')


def some(values: list) -> list:
    """At most READ of them, evenly chosen."""
    return values[:: -(-len(values) // READ)]


def divide(values: list, share: float) -> tuple[list, list]:
    """Those for training, and at random a share of them for validation."""
    count = round(share * len(values))
    if not 0 < count < len(values):
        raise ConfigError(f'--split {share} of {len(values)} images leaves a part without images.')
    chosen = {*random.Random(0).sample(range(len(values)), count)}
    parts = [], []
    for i, value in enumerate(values):
        parts[i in chosen].append(value)
    return parts


def beside(args: argparse.Namespace, ending: str, *texts: str) -> list[str]:
    """Names of two files, for training and for validation, which are written with the config."""
    names = [str(args.out.with_name(f'{args.out.stem}_{x}{ending}')) for x in ('train', 'val')]
    args.files = dict(zip(names, texts, strict=True))
    return names


def typical_size(files: list[Path]) -> np.ndarray:
    """The medians of the long and of the short side, as some images may be upright."""
    sizes = []
    for file in files:
        with Image.open(file) as image:
            sizes.append(sorted(image.size, reverse=True))
    low, median, high = np.percentile(sizes, [0, 50, 100], axis=0).astype(int)
    print(f'{median[0]} x {median[1]} pixels (the sides: {low.min()} to {high.max()})')
    return median


def count_labels(files: list[Path], classes: list[str], reduce: bool) -> tuple[np.ndarray, bool]:
    """Pixels (K,) of each class; whether 0 does not count and classes start at 1."""
    pixels, images = np.zeros((2, 2**16), np.int64)
    for file in files:
        counts = np.bincount(read_labels(file).ravel(), minlength=2**16)
        pixels += counts
        images += counts > 0
    ids, count = np.flatnonzero(pixels), len(classes)
    own = ids[ids != IGNORED]
    reduce |= [*own[:1], *own[-1:]] == [1, count]
    if own.size < 2 or own[-1] >= count + reduce:
        raise ConfigError(
            f'The labels have the ids {", ".join(map(str, ids))}, and {count} classes have names. '
            'If 0 does not count: --reduce-zero-label. If 0 is a class, such as background, it is '
            f'the first name. {IGNORED} does not count: masks of 0 and 255 need 1 in place of 255, '
            'and other ids that do not count must become 255 (tools/convert_labels.py).'
        )
    pixels, images = (x[reduce : count + reduce] for x in (pixels, images))
    for name, n, with_it in zip(classes, pixels, images, strict=True):
        share = n / pixels.sum()
        rare = '   never' if not n else '   rare' if share < 0.1 / count else ''
        print(f'  {name:16} {share:8.2%} of the pixels, in {with_it:,} images{rare}')
    return pixels, reduce


def segmentor(args: argparse.Namespace, cfg: Config) -> tuple[list[str], str]:
    """Names of the classes, and the config without its head."""
    classes = read_classes(args.classes)
    own = read_class_file(args.classes)[1] if Path(args.classes).is_file() else []
    stems, suffixes = pair(args.images, args.labels)
    train = val = str(args.images), str(args.labels), ''
    if args.val_images:
        val = str(args.val_images), str(args.val_labels), ''
        if pair(args.val_images, args.val_labels)[1] != suffixes:
            raise ConfigError(f'The files for validation must end with {" and ".join(suffixes)}.')
    else:
        stems, others = divide(stems, args.split)
        files = beside(args, '.txt', '\n'.join(stems), '\n'.join(others))
        train, val = ((*train[:2], file) for file in files)
    print(f'{len(stems):,} images for training')
    size = typical_size([args.images / f'{x}{suffixes[0]}' for x in some(stems)])
    labels = [args.labels / f'{x}{suffixes[1]}' for x in some(stems)]
    pixels, reduce = count_labels(labels, classes, args.reduce_zero_label)
    factor = np.clip(min(size), 128, 1024) / min(size)  # 1 if they are neither small nor huge
    scale = tuple(round(side * float(factor)) for side in size)
    interval = int(np.clip(round(len(stems) * 100 / BATCH / 8, -2), 100, 10000))
    share = pixels.clip(1) / pixels.sum()
    weights = share**-0.5 / (share**0.5).sum()  # 1 on average over the pixels
    return classes, SEGMENTOR.format(
        palette=own or [tuple(x) for x in distinct_palette(len(classes)).tolist()],
        suffixes=suffixes,
        train=train,
        val=val,
        reduce=reduce,
        scale=scale,
        crop=min(512, int(0.9 * scale[1]) // 32 * 32),
        batch=BATCH,
        weights=weights.clip(max=10).round(2).tolist(),
        auxiliary='\n    auxiliary_head=dict(num_classes=len(classes)),'
        * ('auxiliary_head' in cfg.model),
        iterations=8 * interval,
        epochs=round(8 * interval * BATCH / len(stems)),
    )


def about_steps(images: int, batch: int) -> dict[str, int]:
    """Iterations of an epoch, and between two lines of the log."""
    steps = -(-images // batch)
    return dict(steps=steps, log=int(np.clip(steps // 4, 1, 50)))


def rarity(count: int) -> str:
    return '   never' if not count else '   rare' if count < 10 else ''


def detector(args: argparse.Namespace, cfg: Config) -> tuple[list[str], str]:
    """Names of the classes, and the config without its head."""
    content = json.loads(args.annotations.read_text())
    train = str(args.images), str(args.annotations)
    if args.val_images:
        val = str(args.val_images), str(args.val_annotations)
    else:
        parts = []
        for images in divide(content['images'], args.split):
            ids = {image['id'] for image in images}
            objects = [x for x in content['annotations'] if x['image_id'] in ids]
            parts.append({**content, 'images': images, 'annotations': objects})
        content, files = parts[0], beside(args, '.json', *map(json.dumps, parts))
        train, val = ((str(args.images), file) for file in files)
    names = {category['id']: category['name'] for category in content['categories']}
    wanted = read_classes(args.classes) if args.classes else names.values()
    if unknown := {*wanted} - {*names.values()}:
        raise ConfigError(f'No category is {", ".join(unknown)}; there are {[*names.values()]}.')
    classes = [name for name in names.values() if name in wanted]  # in the order of mmdet
    objects = [x for x in content['annotations'] if names[x['category_id']] in wanted]
    if not objects:
        raise ConfigError(f'{args.annotations} has no objects of these classes for training.')
    masks = 'mask_head' in cfg.model.get('roi_head', {})
    for key in ('area', *['segmentation'] * masks):
        if missing := sum(key not in x for x in objects):
            raise ConfigError(f'{missing:,} objects of {args.annotations} have no {key}.')
    images = len({x['image_id'] for x in objects})
    print(f'{images:,} images with objects for training')
    counts = Counter(names[x['category_id']] for x in objects)
    for name in classes:
        print(f'  {name:16} {counts[name]:,} objects{rarity(counts[name])}')
    heads = ['bbox_head=dict(num_classes=len(classes))']
    heads += ['mask_head=dict(num_classes=len(classes))'] * masks
    return classes, DETECTOR.format(
        palette=', palette=None' * (len(classes) > 80),  # which COCO has colours for
        masks=masks,
        train=train,
        val=val,
        metric="type='mmbixt.BoundaryCocoMetric', " * masks,
        heads=f'roi_head=dict({", ".join(heads)})' if 'roi_head' in cfg.model else heads[0],
        epochs=int(np.clip(20000 / images, 12, 100)),
        **about_steps(images, 2),
    )


def images_of_classes(folder: Path) -> dict[str, list[str]]:
    """The images of each class, which has a folder, by their paths in the folder of all."""
    images = {x.name: [] for x in sorted(folder.iterdir()) if x.is_dir()}
    for name in sorted(x.relative_to(folder).as_posix() for x in folder.glob('*/**/*')):
        if Path(name).suffix.lower() in SUFFIXES:
            images[name.split('/')[0]].append(name)
    if len(images) < 2 or not all(images.values()):
        found = ', '.join(f'{name} ({len(x)})' for name, x in images.items()) or 'none'
        raise ConfigError(f'{folder} needs a folder of images for each class; it has {found}.')
    return images


def classifier(args: argparse.Namespace, cfg: Config) -> tuple[list[str], str]:
    """Names of the classes, and the config without its head."""
    images, val_images = images_of_classes(args.images), args.val_images or args.images
    classes, others = [*images], images_of_classes(val_images)
    if [*others] != classes:
        raise ConfigError(f'{args.images} has the classes {classes}, {val_images} has {[*others]}.')
    lines, val_lines = (
        [f'{name} {i}' for i, names in enumerate(x.values()) for name in names]
        for x in (images, others)
    )
    if not args.val_images:
        lines, val_lines = divide(lines, args.split)
    # lists, since without them mmpretrain takes some suffixes alone
    files = beside(args, '.txt', '\n'.join(lines), '\n'.join(val_lines))
    print(f'{len(lines):,} images for training')
    counts = Counter(line.rpartition(' ')[2] for line in lines)
    for i, name in enumerate(classes):
        print(f'  {name:16} {counts[str(i)]:,} images{rarity(counts[str(i)])}')
    models = load(config_files()[args.like].with_name('metafile.yml'))['Models']
    results = (x for model in models if model['Name'] == args.like for x in model['Results'])
    weights = next((x['Weights'] for x in results if 'Weights' in x), None)  # published ones
    own = [x for x in ('backbone', 'neck') if weights and cfg.model[x].type.startswith('mmbixt.')]
    folders = zip((args.images, val_images), files, strict=True)
    crop = cfg.test_pipeline[2].crop_size
    train, val = (f'data_prefix={str(x)!r}, ann_file={file!r}' for x, file in folders)
    return classes, CLASSIFIER.format(
        train=train,
        val=val,
        crop=crop,
        edge=round(cfg.test_pipeline[1].scale / crop, 3),
        batch=BATCH_OF_CLASSES,
        weights=weights and f"dict(type='Pretrained', checkpoint={weights!r})",
        parts=''.join(f'\n    {part}=dict(init_cfg=weights),' for part in own),
        # of binary cross-entropy, a mean over classes
        loss=', loss=dict(loss_weight=1 / len(classes))' * ('loss_weight' in cfg.model.head.loss),
        rate=5e-5 if weights else 1e-3,
        epochs=int(np.clip(32000 / len(lines), 20, 100)),
        **about_steps(len(lines), BATCH_OF_CLASSES),
    )


def main() -> None:
    args = parse_args()
    if args.out.exists():
        raise FileExistsError(f'{args.out} exists.')
    cfg, file = read_config(args.like), config_files().get(args.like)
    kinds = dict(mmseg=segmentor, mmdet=detector, mmpretrain=classifier)
    scope = 'mmseg' if args.labels else 'mmdet' if args.annotations else 'mmpretrain'
    is_ours = (
        file is not None and file.is_relative_to(CONFIGS) and not args.like.endswith('cifar100')
    )
    if cfg.default_scope != scope or not is_ours:
        raise ConfigError(f"--like must be one of mmbixt's configs of {scope}, by its name.")
    for folder in (args.images, args.labels, args.val_images, args.val_labels):
        if folder and not folder.is_dir():
            raise NotADirectoryError(f'There is no folder {folder}.')
    classes, rest = kinds[scope](args, cfg)
    head = HEAD.format(family=file.parent.name, name=args.like, classes=classes)
    for name in args.files:  # perhaps the file of --annotations
        if Path(name).exists():
            raise FileExistsError(f'{name} exists.')
    for name, text in {**args.files, args.out: head + rest}.items():
        Path(name).write_text(text)
    print(rest[rest.index('\nmodel') :])
    print(f'{args.out} is written. Read it, then: python tools/train.py {args.out}')


if __name__ == '__main__':
    run(main)
