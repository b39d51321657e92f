import pytest
from checking import CLASSES, SMALL, STEPS, TRAINING
from helpers import CONFIGS
from mmengine.config import Config
from running import write_images


@pytest.fixture
def root(tmp_path):
    """Three images of 80 x 64 pixels, with labels of three classes."""
    write_images(tmp_path, 3, 64, 80)
    return tmp_path


@pytest.fixture
def cfg(root):
    """A segmentor with a BiFormer on these images."""
    cfg = Config.fromfile(CONFIGS / 'biformer/semfpn_biformer_t_ade20k.py')
    dataset = dict(type='BaseSegDataset', data_root=str(root), metainfo=dict(classes=CLASSES))
    dataset |= dict(data_prefix=dict(img_path='images', seg_map_path='labels'), pipeline=STEPS)
    for split in TRAINING:
        cfg[f'{split}_dataloader'].dataset = dataset
    cfg.merge_from_dict(
        {
            'model.decode_head.num_classes': 3,
            'model.data_preprocessor.size': (64, 64),
            'model.backbone': dict(num_regions=4, arch=SMALL, init_cfg=None),
        }
    )
    return cfg
