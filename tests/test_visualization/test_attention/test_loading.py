import cv2
import numpy as np
import pytest
import torch
from helpers import CONFIGS
from mmengine.config import Config

from mmbixt.backbones import BiXT
from mmbixt.checkpoints.state_dict import CheckpointMismatchError
from mmbixt.visualization.attention import AttentionPictureError
from mmbixt.visualization.attention.loading import load_backbone, prepare_image

SMALL = dict(embed_dims=32, num_heads=2, depth=2)


@pytest.fixture
def photo(tmp_path):
    """40 x 30 pixels, red at the left."""
    path = tmp_path / 'photo.png'
    pixels = np.zeros((30, 40, 3), np.uint8)
    pixels[:, :20, 2] = 200
    cv2.imwrite(str(path), pixels)
    return str(path)


def small(config):
    cfg = Config.fromfile(CONFIGS / config)
    cfg.model.backbone.update(arch=SMALL, out_indices=(0, 1))
    return cfg


def test_image_is_what_tests_of_mmseg_see(photo):
    prepared = prepare_image(small('bixt/semfpn_bixt_ti_ade20k.py'), photo)
    assert prepared.original == (40, 30)
    assert prepared.image.shape == (512, 683, 3)
    assert prepared.image[256, 10].tolist() == [200, 0, 0]  # RGB
    expected = torch.tensor([(200 - 123.675) / 58.395, -116.28 / 57.12, -103.53 / 57.375])
    torch.testing.assert_close(prepared.inputs[0, :, 256, 10], expected)


def test_padding_of_a_detector_is_not_in_the_image(photo):
    prepared = prepare_image(small('bixt/maskrcnn_bixt_ti_3x_coco.py'), photo)
    assert prepared.image.shape == (800, 1067, 3)
    assert prepared.inputs.shape == (1, 3, 800, 1088)
    assert not prepared.inputs[..., 1067:].any()


def test_files_that_are_no_images(tmp_path):
    cfg = small('bixt/semfpn_bixt_ti_ade20k.py')
    with pytest.raises(FileNotFoundError, match=r'no image at .*nope\.jpg'):
        prepare_image(cfg, str(tmp_path / 'nope.jpg'))
    text = tmp_path / 'text.jpg'
    text.write_text('text')
    with pytest.raises(AttentionPictureError, match=r'text\.jpg is not an image'):
        prepare_image(cfg, str(text))


@pytest.mark.parametrize('prefix', ['backbone.', ''])
def test_weights_of_a_whole_model_or_of_its_backbone(tmp_path, prefix):
    cfg = small('bixt/semfpn_bixt_ti_ade20k.py')
    backbone, path = BiXT(SMALL, out_indices=(0, 1)), str(tmp_path / 'x.pth')
    state = {f'{prefix}{key}': value for key, value in backbone.state_dict().items()}
    if prefix:
        state['decode_head.weight'] = torch.zeros(3)
    torch.save(dict(state_dict=state), path)
    loaded = load_backbone(cfg, path)
    torch.testing.assert_close(loaded.state_dict(), backbone.state_dict(), rtol=0, atol=0)
    assert not loaded.training
    torch.save({'backbone.x': torch.zeros(1)}, path)
    with pytest.raises(CheckpointMismatchError, match='Missing in the file'):
        load_backbone(cfg, path)


def test_other_backbones():
    cfg = small('bixt/semfpn_bixt_ti_ade20k.py')
    cfg.model.backbone = dict(type='mmseg.ResNetV1c', depth=18)
    with pytest.raises(AttentionPictureError, match=r'BiFormer.* is a ResNetV1c'):
        load_backbone(cfg, 'not read')
