# BiXT's recipe for ImageNet-1k: LAMB with clipped trust ratios, a warm-up of 5 epochs from 1e-6,
# then a cosine to zero. 1024 images per step are 128 on each of 8 GPUs.
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='Lamb', lr=2.5e-3, weight_decay=0.05, trust_clip=True),
    paramwise_cfg=dict(
        norm_decay_mult=0.0,
        bias_decay_mult=0.0,
        # A key matches where it is part of a weight's name; see adamw_80k.py.
        custom_keys={
            'backbone.latents': dict(decay_mult=0.0),
            'fourier_pos_encode': dict(decay_mult=0.0),
            'gamma': dict(decay_mult=0.0),
        },
    ),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=4e-4, begin=0, end=5, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', begin=5, end=800, T_max=795, convert_to_iter_based=True),
]
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=800, val_interval=1)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
# The learning rate is for 1024 images per step. --auto-scale-lr scales it to another total.
auto_scale_lr = dict(enable=False, base_batch_size=1024)
