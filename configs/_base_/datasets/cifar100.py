_base_ = './imagenet.py'

# CIFAR-100, enlarged from 32 to 224 x 224 pixels as the networks of ImageNet need it, in tests by
# Swin's crop; it is downloaded at the first use.
dataset_type = 'CIFAR100'
data_root = 'data/cifar100/'
data_preprocessor = dict(
    num_classes=100,  # Mixup and CutMix make one-hot labels
    # mean and std of the RGB images as they are stored
    mean=[129.304, 124.070, 112.434],
    std=[68.170, 65.392, 70.418],
    to_rgb=False,
)
train_pipeline = [
    dict(type='RandomResizedCrop', scale=224, backend='pillow', interpolation='bicubic'),
    dict(type='RandomFlip', prob=0.5, direction='horizontal'),
    dict(type='NumpyToPIL'),
    dict(type='PILToNumpy', to_bgr=True),  # by which RandAugment weighs the channels
    dict(
        type='RandAugment',
        policies='timm_increasing',
        num_policies=2,
        total_level=10,
        magnitude_level=9,
        magnitude_std=0.5,
        hparams=dict(pad_val=[112, 124, 129], interpolation='bicubic'),
    ),
    dict(type='NumpyToPIL', to_rgb=True),
    dict(type='PILToNumpy'),
    dict(
        type='RandomErasing',
        erase_prob=0.25,
        mode='rand',
        min_area_ratio=0.02,
        max_area_ratio=1 / 3,
        fill_color=data_preprocessor['mean'],
        fill_std=data_preprocessor['std'],
    ),
    dict(type='PackInputs'),
]
test_pipeline = [
    dict(type='Resize', scale=256, backend='pillow', interpolation='bicubic'),
    dict(type='CenterCrop', crop_size=224),
    dict(type='PackInputs'),
]
train_dataloader = dict(
    dataset=dict(type=dataset_type, data_root=data_root, split='train', pipeline=train_pipeline)
)
val_dataloader = dict(
    dataset=dict(type=dataset_type, data_root=data_root, split='test', pipeline=test_pipeline)
)
test_dataloader = val_dataloader
