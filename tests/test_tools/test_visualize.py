"""Pictures of a model's errors near boundaries, as a user asks for them."""

from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
import visualize as tool
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

from mmbixt.evaluation import image_sums, scores
from mmbixt.evaluation.sums import ImageSums, write_sums

pytest.importorskip('mmseg')

ROOT = Path(__file__).parents[2]
CONFIG = f"""
_base_ = '{ROOT}/configs/bixt/semfpn_bixt_ti_ade20k.py'
pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(64, 64)),
    dict(type='LoadAnnotations'),
    dict(type='PackSegInputs'),
]
val_dataloader = dict(
    dataset=dict(
        type='BaseSegDataset',
        data_root='data',
        data_prefix=dict(img_path='images', seg_map_path='labels'),
        metainfo=dict(classes=['sky', 'tree', 'car'], palette=[[0, 0, 255], [0, 9, 0], [9, 0, 0]]),
        img_suffix='.jpg',
        pipeline=pipeline,
    )
)
small = dict(_delete_=True, embed_dims=16, num_heads=2, depth=1)
model = dict(
    backbone=dict(init_cfg=None, arch=small, out_indices=(0,), num_latents=4),
    neck=dict(_delete_=True, type='mmseg.FPN', in_channels=[16], out_channels=16, num_outs=4),
    decode_head=dict(
        num_classes=3, in_channels=[16] * 4, channels=16, norm_cfg=dict(type='BN')
    ),
)
"""


@pytest.fixture(scope='module')
def project(tmp_path_factory):
    """A folder with a config, five images and the weights of a model that has learnt nothing."""
    folder = tmp_path_factory.mktemp('user')
    (folder / 'mine.py').write_text(CONFIG)
    rng = np.random.default_rng(0)
    for part in ('images', 'labels'):
        (folder / 'data' / part).mkdir(parents=True)
    for i in range(5):
        labels = rng.integers(0, 3, (4, 5), np.uint8).repeat(12, 0).repeat(16, 1)
        cv2.imwrite(str(folder / f'data/images/scene_{i}.jpg'), labels * 80)
        cv2.imwrite(str(folder / f'data/labels/scene_{i}.png'), labels)
    init_default_scope('mmseg')
    model = MODELS.build(Config.fromfile(folder / 'mine.py').model)
    torch.save(dict(state_dict=model.state_dict()), folder / 'mine.pth')
    return folder


@pytest.fixture
def visualize(project, within, monkeypatch):
    """Runs the tool in the project: what it printed."""
    monkeypatch.chdir(project)

    def visualize(*arguments, config='mine.py', checkpoint='mine.pth'):
        done = within('analysis/visualize.py', config, checkpoint, *arguments)
        return done.stdout, done.stderr if done.returncode else ''

    return visualize


def pictures(folder):
    return sorted(path.name for path in Path(folder).iterdir())


def test_pictures_are_where_it_says(visualize):
    said, error = visualize('--images', 'scene_0', 'scene_3')
    assert error == ''
    assert said.endswith('2 pictures of 5 images: work_dirs/mine/boundary_errors\n')
    assert pictures('work_dirs/mine/boundary_errors') == ['scene_0.png', 'scene_3.png']
    picture = cv2.imread('work_dirs/mine/boundary_errors/scene_0.png')
    for colour in ((255, 0, 0), (0, 9, 0), (0, 0, 9)):  # of the truth
        assert (picture == colour).all(-1).sum() > 10_000


@pytest.mark.parametrize(
    ('wanted', 'found'),
    [(['2'], [0, 2]), (['9'], [0, 1, 2, 3, 4]), (['scene_3'], [3]), (['b/scene_4.jpg'], [4])],
)
def test_images_by_number_and_by_name(wanted, found):
    assert tool.choose([f'scene_{i}' for i in range(5)], wanted) == found


def graded(count, without_boundary=2):
    """Counts of images, of which each is worse than the one before; one has no boundary."""
    truth = np.zeros((10, 20), int)
    truth[:, 10:] = 1
    for i in range(count):
        prediction = truth.copy()
        prediction[: 2 * i] = 2
        yield image_sums(truth * (i != without_boundary), prediction, 3, widths=(3,))


def test_worst_images(visualize, tmp_path):
    of_images = list(graded(5))
    counts = {name: np.stack([sums[name] for sums in of_images]) for name in of_images[0]}
    names = [f'scene_{i}.jpg' for i in range(5)]
    write_sums(tmp_path / 'run/1/boundary.npz', names, ['sky', 'tree', 'car'], counts)
    options = ['--sums', tmp_path / 'run', '--out-dir', tmp_path / 'out']
    _, error = visualize('--worst', 2, *options)
    assert error == ''
    assert pictures(tmp_path / 'out') == ['scene_3.png', 'scene_4.png']
    # by the score that the picture says, and not those that have none
    means = [scores(sums)['band3px/mIoU'] for sums in of_images]
    assert np.isnan(means[2])
    order = tool.worst_images(ImageSums(names, ['sky', 'tree', 'car'], counts), 'band3px', 9)
    assert order == [names[i] for i in np.argsort(means)[:4]]
    _, error = visualize('--worst', 2, '--width', 5, *options)
    assert '--sums has no counts of band5px; it has band3px. Say with --width.' in error


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (['--worst', 2], '--worst N and --sums RUN go together'),
        (['--sums', 'x.npz'], '--worst N and --sums RUN go together'),
        (['--worst', 0, '--sums', 'x.npz'], '--worst is at least 1'),
        (['--worst', 2, '--sums', 'x.npz'], 'There is no file and no folder x.npz'),
        (['--images', 'scene_7'], 'no image scene_7. It has 5 images: scene_0; scene_1'),
    ],
)
def test_wrong_arguments(arguments, message, visualize):
    said, error = visualize(*arguments)
    assert message in error
    assert 'Traceback' not in error
    assert said == ''


def test_half_a_model_is_not_drawn(visualize):
    state = torch.load('mine.pth')['state_dict']
    half = {key: value for key, value in state.items() if key.startswith('backbone')}
    torch.save(dict(state_dict=half), 'half.pth')
    other = {**state, 'decode_head.conv_seg.weight': torch.zeros(7, 16, 1, 1)}
    torch.save(dict(state_dict=other), 'other.pth')
    for checkpoint, message in (('half', 'lacks'), ('other', 'does not fit')):
        _, error = visualize(checkpoint=f'{checkpoint}.pth')
        assert error.startswith(f'CheckpointMismatchError: The checkpoint {message}')
    _, error = visualize(checkpoint='nowhere.pth')
    assert error.startswith('FileNotFoundError')


def test_configs_that_do_not_fit(visualize):
    Path('detector.py').write_text("default_scope = 'mmdet'")
    _, error = visualize(config='detector.py')
    assert 'detector.py is a config of mmdet. This tool draws label maps' in error
    config = CONFIG.replace("    dict(type='LoadAnnotations'),\n", '')
    Path('unlabelled.py').write_text(config)
    _, error = visualize('--images', 1, config='unlabelled.py')
    assert error.startswith('error: There is no gt_sem_seg of image')
