# DeiT's recipe for ImageNet-1k, which XCiT, BiFormer and Swin follow with other numbers of epochs:
# AdamW with 5e-4 for each 512 images of a step, a warm-up from 1e-6, then a cosine. 1024 images a
# step are 128 on each of 8 GPUs. In their scripts the cosine includes the warm-up, and the rate
# changes after each epoch (Swin's: each step); here it starts after it, and changes each step.
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=1e-3, betas=(0.9, 0.999), weight_decay=0.05, fused=True),
    constructor='mmbixt.FewGroupsConstructor',
    paramwise_cfg=dict(
        norm_decay_mult=0.0,
        bias_decay_mult=0.0,
        # A key matches where it is part of a weight's name; see adamw_80k.py.
        custom_keys={
            'cls_token': dict(decay_mult=0.0),
            'gamma': dict(decay_mult=0.0),
            'relative_position_bias_table': dict(decay_mult=0.0),
            'lam_logit': dict(decay_mult=0.0),
        },
    ),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=5, convert_to_iter_based=True),
    dict(
        type='CosineAnnealingLR',
        eta_min=1e-5,
        begin=5,
        end=300,
        T_max=295,
        convert_to_iter_based=True,
    ),
]
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=300, val_interval=1)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
# The learning rate is for 1024 images per step. --auto-scale-lr scales it to another total.
auto_scale_lr = dict(enable=False, base_batch_size=1024)
