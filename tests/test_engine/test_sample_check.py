"""Bad images and labels stop a run or are skipped, in data sets of each framework."""

import errno
import json
from pathlib import Path
from unittest import mock

import cv2
import numpy as np
import pytest
from mmdet.datasets import CocoDataset
from mmengine.dataset import ConcatDataset
from mmengine.runner import Runner
from mmpretrain.datasets import CustomDataset
from mmseg.datasets import BaseSegDataset
from PIL import Image
from running import FirstClass, fresh_mmengine, training, write_images

from mmbixt.datasets.problems import BadSampleError, BoxProblem, check_annotations, unused_boxes
from mmbixt.engine.sample_check import SkippedImages, watch

LOAD = dict(type='LoadImageFromFile')
NAMES = [f'{i}.jpg' for i in range(4)]
CLASSES = ('sky', 'road', 'car')


@pytest.fixture
def root(tmp_path):
    """Four images of 32 x 24 pixels with label maps, and their COCO file."""
    write_images(tmp_path, len(NAMES), 24, 32)
    (tmp_path / 'names.txt').write_text('\n'.join(name[0] for name in NAMES))
    images = [dict(id=i, file_name=name, width=32, height=24) for i, name in enumerate(NAMES)]
    annotations = [
        dict(id=i, image_id=i, category_id=1, bbox=[2, 2, 20, 20], area=400, iscrowd=0)
        for i in range(4)
    ]
    categories = [dict(id=i, name=name) for i, name in enumerate(CLASSES)]
    content = dict(images=images, annotations=annotations, categories=categories)
    (tmp_path / 'coco.json').write_text(json.dumps(content))
    return tmp_path


def segmentation(root, load=LOAD, **options):
    return BaseSegDataset(
        ann_file=f'{root}/names.txt',
        data_prefix=dict(img_path=f'{root}/images', seg_map_path=f'{root}/labels'),
        metainfo=dict(classes=CLASSES),
        serialize_data=False,
        # labels after resizing, as in tests
        pipeline=[
            load,
            dict(type='mmseg.Resize', scale=(16, 12)),
            dict(type='mmseg.LoadAnnotations'),
            dict(type='mmseg.PackSegInputs'),
        ],
        **options,
    )


def detection(root, load=LOAD, **options):
    return CocoDataset(
        ann_file=f'{root}/coco.json',
        data_prefix=dict(img=f'{root}/images'),
        metainfo=dict(classes=CLASSES),
        serialize_data=False,
        pipeline=[load, dict(type='mmdet.LoadAnnotations'), dict(type='mmdet.PackDetInputs')],
        **options,
    )


def classification(root, load=LOAD):
    return CustomDataset(
        data_prefix=f'{root}/images',
        with_label=False,
        pipeline=[load, dict(type='mmpretrain.PackInputs')],
    )


def read(dataset, model=None, skipped=None):
    watch(dataset, model or FirstClass(), skipped)
    return [dataset[i] for i in range(len(dataset))]


IMAGE, LABEL = 'images/1.jpg', 'labels/1.png'


def dangle(path):
    path.unlink()
    path.symlink_to('nowhere')


def truncate(path):
    path.write_bytes(path.read_bytes()[:-60])


def orient(tag):
    def turn(path):
        with Image.open(path) as picture:
            exif = picture.getexif()
            exif[0x0112] = tag
            picture.save(path, exif=exif)

    return turn


def edit_label(function):
    """Replace the label map (24,32) of a file by a function of it."""

    def edit(path):
        cv2.imwrite(str(path), function(cv2.imread(str(path), cv2.IMREAD_UNCHANGED)))

    return edit


def edit_coco(root, function):
    content = json.loads((root / 'coco.json').read_text())
    function(content)
    (root / 'coco.json').write_text(json.dumps(content))


EMPTY = lambda path: path.write_bytes(b'')  # noqa: E731
DAMAGES = {  # file: what becomes of it, and what is said
    IMAGE: [
        (dangle, '{path}: missing'),
        (EMPTY, '{path}: an empty file'),
        (truncate, r'{path}: damaged.*\(image file is truncated'),
        (lambda path: path.write_text('<html>'), r'{path}: damaged.*\(it has the format of no'),
        (orient(6), '{path} is turned .* labels are not turned.*color_ignore'),
        (orient(3), '{path} is turned .* labels may be for'),
    ],
    LABEL: [
        (Path.unlink, '{path}: missing'),
        (EMPTY, '{path}: an empty file'),
        (truncate, '{path}: damaged'),
        (edit_label(lambda x: x.repeat(2, 0).repeat(2, 1)), '{path} is for 64 x'),
        (edit_label(lambda x: x[:20]), '{path} is for 32 x 20 pixels, but .*1.jpg has'),
        (edit_label(lambda x: np.dstack([x] * 3)), '{path} is of shape 24 x 32 x 3'),
        (edit_label(lambda x: x + np.uint16(300)), '{path} has ids up to 555'),
        (edit_label(lambda x: x + 2), r'{path} has the ids 3 \(.*, 4 .*, where 0 to 2'),
    ],
}
CASES = [(segmentation, file, *case) for file, cases in DAMAGES.items() for case in cases]
CASES += [
    (detection, IMAGE, lambda x: Image.new('RGB', (30, 24)).save(x), 'is for 32 x 24.*{path} h'),
    (detection, IMAGE, orient(8), '{path} is turned .* labels are not turned'),
    (classification, IMAGE, *DAMAGES[IMAGE][2]),
]


@pytest.mark.parametrize(('make', 'file', 'damage', 'message'), CASES)
def test_damaged_files_are_named_or_skipped(root, make, file, damage, message):
    assert len(read(make(root))) == 4
    damage(root / file)
    pattern = message.format(path=root / file)
    with pytest.raises(BadSampleError, match=pattern):
        read(make(root))
    skipped = SkippedImages(root / 'skipped.txt', 1)
    assert len(read(make(root), skipped=skipped)) == 4
    (line,) = skipped.read()
    assert str(root) in line
    with pytest.raises(BadSampleError, match='skipped before: 0, which is max_sk'):
        read(make(root), skipped=SkippedImages(root / 'none.txt', 0))


def test_images_without_problems(root):
    """Labels of the orientation in which images are read; boxes that reach a pixel outside."""
    orient(6)(root / IMAGE)
    edit_label(lambda x: np.rot90(x).copy())(root / LABEL)
    orient(3)(root / 'images/2.jpg')
    with pytest.raises(BadSampleError, match=r'2\.jpg is turned'):
        read(segmentation(root))
    orient(1)(root / 'images/2.jpg')
    edit_label(np.uint16)(root / LABEL)
    read(segmentation(root))
    edit_coco(root, lambda c: c['images'][1].update(width=24, height=32))
    edit_coco(root, lambda c: c['annotations'][0].update(bbox=[-1, 4, 34, 20]))
    read(detection(root))
    as_stored = dict(LOAD, color_type='color_ignore_orientation')
    orient(3)(root / IMAGE)
    edit_label(lambda x: np.rot90(x).copy())(root / LABEL)
    edit_coco(root, lambda c: c['images'][1].update(width=32, height=24))
    read(segmentation(root, as_stored))
    read(detection(root, as_stored))


def test_pixels_that_are_not_finite(root):
    for path in (root / 'images').iterdir():
        pixels = cv2.imread(str(path)).astype(np.float32)
        pixels[3, 4] = np.nan if path == root / IMAGE else 1
        cv2.imwrite(str(path.with_suffix('.tiff')), pixels)
    load = dict(LOAD, color_type='unchanged')
    with pytest.raises(BadSampleError, match=r'1\.tiff has 3 values that are NaN'):
        read(segmentation(root, load, img_suffix='.tiff'))


def head(**attributes):
    model = FirstClass()
    for name, value in (dict(ignore_index=255) | attributes).items():
        setattr(model, name, value)
    return model


def test_classes_of_the_head_and_reduced_labels(root):
    model = head(num_classes=2)
    with pytest.raises(BadSampleError, match=r'has the ids 2 .*where 0 to 1 are'):
        read(segmentation(root), model)
    model.boundary = head(num_classes=3)  # with several heads, one that has these classes
    read(segmentation(root), model)
    edit_label(lambda x: x + 2)(root / LABEL)
    with pytest.raises(BadSampleError, match=r'has the ids 3 .*, after reduce_zero_label'):
        read(segmentation(root, reduce_zero_label=True))


@pytest.mark.parametrize('options', [dict(num_classes=1), dict(num_classes=2, out_channels=1)])
def test_a_head_with_one_logit_has_two_classes(root, options):
    for i in range(4):
        edit_label(lambda x: (x == 1).astype(np.uint8))(root / f'labels/{i}.png')
    read(segmentation(root), head(**options))
    edit_label(lambda x: x * 77)(root / LABEL)
    with pytest.raises(BadSampleError, match=r'has the ids 77 .*0 to 1 are'):
        read(segmentation(root), head(**options))
    read(segmentation(root), head(**options | dict(ignore_index=77)))


def test_boxes_beyond_the_image_are_logged_once(root):
    for i in (0, 1):
        edit_coco(root, lambda c, i=i: c['annotations'][i].update(bbox=[4, 4, 60, 20]))
    with mock.patch('mmbixt.datasets.problems.print_log') as log:
        read(detection(root))
    ((text, *_),) = [call.args for call in log.call_args_list]
    assert '0.jpg is 32 x 24 pixels, and a box of its annotations' in text
    assert 'is 4, 4, 64, 24. Is it meant' in text


@pytest.mark.parametrize('box', [(40, 2, 50, 9), (-9, 2, -4, 9), (0, float('nan'), 5, 9)])
def test_boxes_outside_of_the_image_or_not_finite(box):
    results = dict(img_path='a.jpg', ori_shape=(24, 32), instances=[dict(bbox=box)])
    assert 'a.jpg is 32 x 24' in BoxProblem()(results, turns=True)


@pytest.mark.parametrize('error', [MemoryError(), OSError(errno.EIO, 'x')])
def test_errors_of_the_machine_are_not_skipped(root, error):
    skipped = SkippedImages(root / 'skipped.txt', 9)
    load = mock.patch('mmcv.transforms.LoadImageFromFile.transform', side_effect=error)
    with load, pytest.raises(type(error)):
        read(segmentation(root), skipped=skipped)
    assert not skipped.read()


def test_mistakes_in_the_config_are_not_skipped(root):
    dataset = segmentation(root)
    dataset.pipeline.transforms.insert(2, lambda results: results.pop('seg_map_path') and results)
    with pytest.raises(BadSampleError, match=r"LoadAnnotations needs 'seg_map_path', which .*0.jp"):
        read(dataset, skipped=SkippedImages(root / 'skipped.txt', 9))


def test_boxes_without_masks_do_not_suit_a_detector_of_masks(root):
    dataset = detection(root)
    dataset.pipeline.transforms[1].with_mask = True
    with pytest.raises(BadSampleError, match=r'Annotations of .*0\.jpg have no segmentation'):
        read(dataset)


@pytest.mark.parametrize(
    ('damage', 'message'),
    [
        (lambda c: c.update(annotations=[]), '4 images and 0 annotations, but no'),
        (lambda c: c['categories'][2].update(name='auto'), 'no categories car; it has sky,'),
        (lambda c: c['categories'].reverse(), "order .*Set classes=.'car', 'road', 'sky'."),
        (
            lambda c: c['categories'].append(dict(id=9, name='sky')),
            "several categories with the name 'sky'",
        ),
        (lambda c: c.update(images=[]), '0 images and 4 annotations'),
    ],
)
def test_coco_files_without_annotations_or_classes(root, damage, message):
    edit_coco(root, damage)
    for options in ({}, dict(filter_cfg=dict(filter_empty_gt=True))):
        with pytest.raises(BadSampleError, match=f'coco.json.*{message}'):
            check_annotations(detection(root, **options))


@pytest.mark.parametrize('box', [[40, 2, 9, 9], [2, 2, -9, 9], [2, 2, 9, 0.5], [2, np.nan, 9, 9]])
def test_boxes_that_mmdet_leaves_out(root, box):
    assert unused_boxes(detection(root)) is None
    edit_coco(root, lambda c: c['annotations'][2].update(bbox=box))
    dataset = detection(root)
    assert not dataset.get_data_info(2)['instances']
    text = unused_boxes(dataset)
    assert '1 of 4 annotations are not used' in text
    assert f'{box} in 2.jpg, of 32 x 24' in text


def test_polygons_that_are_flat_lists(root):
    edit_coco(root, lambda c: c['annotations'][0].update(segmentation=[1, 1, 9, 1, 9, 9]))
    dataset = detection(root)
    dataset.pipeline.transforms[1].with_mask = True
    with pytest.raises(BadSampleError, match=r'of .*0\.jpg have a segmentation that is no list'):
        read(dataset)


def test_data_whose_annotations_are_not_read(root):
    edit_coco(root, lambda c: c.update(annotations=[]))
    unlabelled = detection(root)
    del unlabelled.pipeline.transforms[1]
    check_annotations(unlabelled)


def make_runner(root, dataset, check=None, exact=True, **options):
    loader = dict(
        batch_size=2,
        num_workers=1,
        sampler=dict(type='InfiniteSampler', seed=0),
        collate_fn=dict(type='pseudo_collate'),
        dataset=dataset,
    )
    hooks = dict(sample_check=dict(type='mmbixt.SampleCheckHook', **(check or {})))
    if exact:
        hooks['exact_resume'] = dict(type='mmbixt.ExactResumeHook')
    return Runner(
        Recorder(),
        str(root / 'work'),
        **{**training(None), 'train_dataloader': loader, **options},
        default_hooks=hooks,
        experiment_name=f'{root.name}_{len(list(root.glob("work/*")))}',
        randomness=dict(seed=0),
        cfg=dict(train_dataloader={**loader, 'dataset': None}),
    )


class Recorder(FirstClass):
    """Records the names of its training images."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, inputs, data_samples=None, mode='predict'):
        self.seen += [Path(sample.img_path).name for sample in data_samples]
        return super().forward(inputs, data_samples, mode)


def train(root, dataset, **options):
    with fresh_mmengine():
        runner = make_runner(root, dataset, **options)
        try:
            runner.train()
        finally:
            runner.train_loop.dataloader_iterator = None  # ends its workers
    return runner.model.seen, Path(runner.log_dir)


def test_a_run_stops_at_a_bad_image_or_skips_it(root):
    """With a worker process, and a data set in a wrapper."""
    EMPTY(root / IMAGE)

    def dataset():
        return dict(type=lambda: ConcatDataset([segmentation(root)]))

    with pytest.raises(BadSampleError) as info:
        train(root, dataset())
    assert str(info.value).startswith(f'{root / IMAGE}: an empty file. Repair')
    seen, logs = train(root, dataset(), check=dict(on_bad='skip'))
    assert len(seen) == 8
    assert {*seen} == {*NAMES} - {'1.jpg'}
    line = f'{root / IMAGE}: an empty file'
    assert (logs / 'skipped_images.txt').read_text() == f'{line}\n'
    (log,) = logs.glob('*.log')
    assert f'Skipped images: 1\n  {line}' in log.read_text()
    assert train(root, dataset(), check=dict(on_bad='skip'))[0] == seen


def test_workers_must_be_restarted(root):
    with pytest.raises(TypeError, match='add ExactResumeHook'):
        train(root, segmentation(root), exact=False)


def test_validation_skips_no_image(root):
    EMPTY(root / IMAGE)
    validation = dict(batch_size=1, num_workers=0, dataset=segmentation(root))
    validation |= dict(sampler=dict(type='DefaultSampler'), collate_fn=dict(type='pseudo_collate'))
    with fresh_mmengine():
        runner = make_runner(
            root,
            segmentation(root),
            dict(on_bad='skip'),
            val_dataloader=validation,
            val_cfg=dict(),
            val_evaluator=dict(type='DumpResults', out_file_path=f'{root}/results.pkl'),
        )
        with pytest.raises(BadSampleError, match='an empty file'):
            runner.val()
