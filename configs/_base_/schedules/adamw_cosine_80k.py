_base_ = './adamw_80k.py'

# BiFormer's recipe for SemanticFPN: 80k iterations of 32 images, a higher rate, a lower decay of
# all weights, a cosine and a short warm-up.
optim_wrapper = dict(
    _delete_=True,
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=2e-4, betas=(0.9, 0.999), weight_decay=1e-4, fused=True),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.1, by_epoch=False, begin=0, end=1000),
    dict(type='CosineAnnealingLR', eta_min=2e-12, by_epoch=False, begin=0, end=80000),
]
train_cfg = dict(val_interval=4000)
