# XCiT's recipe for SemanticFPN, which BiXT follows: AdamW, a linear decay to zero, and in the first
# 1500 iterations a linear warm-up, which multiplies it as in the authors' mmcv. 80k iterations of
# 32 images (8 GPUs x 4) are 127 epochs of ADE20K.
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=6e-5, betas=(0.9, 0.999), weight_decay=0.01, fused=True),
    constructor='mmbixt.FewGroupsConstructor',
    paramwise_cfg=dict(
        # A key matches where it is part of a weight's name. 'norm' and Swin's table are the keys of
        # XCiT's and BiFormer's authors: layer norms have no decay, batch norms have. It is
        # 'backbone.latents' and not 'latents', which is also part of cross_attention_latents_token.
        custom_keys={
            'norm': dict(decay_mult=0.0),
            'relative_position_bias_table': dict(decay_mult=0.0),
            'backbone.latents': dict(decay_mult=0.0),  # BiXT's
            'fourier_pos_encode': dict(decay_mult=0.0),
            'lam_logit': dict(decay_mult=0.0),  # BiSA's learned share
        },
    ),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-6, by_epoch=False, begin=0, end=1500),
    dict(type='PolyLR', eta_min=0.0, power=1.0, begin=0, end=80000, by_epoch=False),
]
train_cfg = dict(type='IterBasedTrainLoop', max_iters=80000, val_interval=8000)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
# The learning rate is for 32 images per step. --auto-scale-lr scales it to another total.
auto_scale_lr = dict(enable=False, base_batch_size=32)
