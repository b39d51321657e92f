# 12 epochs of COCO with 16 images a step (8 GPUs x 2), as Swin Transformer and BiFormer train Mask
# R-CNN: AdamW, a warm-up of 500 iterations, a tenth of the rate after 8 epochs and again after 11.
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=1e-4, betas=(0.9, 0.999), weight_decay=0.05, fused=True),
    constructor='mmbixt.FewGroupsConstructor',
    paramwise_cfg=dict(
        # see adamw_80k.py
        custom_keys={
            'norm': dict(decay_mult=0.0),
            'relative_position_bias_table': dict(decay_mult=0.0),
            'backbone.latents': dict(decay_mult=0.0),
            'fourier_pos_encode': dict(decay_mult=0.0),
            'lam_logit': dict(decay_mult=0.0),
        },
    ),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.001, by_epoch=False, begin=0, end=500),
    dict(type='MultiStepLR', begin=0, end=12, by_epoch=True, milestones=[8, 11], gamma=0.1),
]
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=12, val_interval=1)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
auto_scale_lr = dict(enable=False, base_batch_size=16)
