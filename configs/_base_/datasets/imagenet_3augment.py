_base_ = './imagenet.py'

# DeiT III's 3-Augment: always one of grey, solarised and blurred, then a change of colours.
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='RandomResizedCrop', scale=224, backend='pillow', interpolation='bicubic'),
    dict(type='RandomFlip', prob=0.5, direction='horizontal'),
    dict(
        type='RandomChoice',
        transforms=[
            [
                dict(
                    type='RandomGrayscale',
                    prob=1.0,
                    keep_channels=True,
                    channel_weights=(0.114, 0.587, 0.299),
                )
            ],
            [dict(type='Solarize', thr=128, prob=1.0)],
            # the radius is drawn uniformly between these two
            [dict(type='GaussianBlur', magnitude_range=(0.1, 2.0), magnitude_std='inf', prob=1.0)],
        ],
    ),
    dict(type='ColorJitter', brightness=0.3, contrast=0.3, saturation=0.3),
    dict(type='PackInputs'),
]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
