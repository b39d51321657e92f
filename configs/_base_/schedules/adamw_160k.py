_base_ = './adamw_80k.py'

# The same for UperNet: 160k iterations of 16 images (8 GPUs x 2) are 127 epochs of ADE20K too.
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-6, by_epoch=False, begin=0, end=1500),
    dict(type='PolyLR', eta_min=0.0, power=1.0, begin=0, end=160000, by_epoch=False),
]
train_cfg = dict(max_iters=160000, val_interval=16000)
auto_scale_lr = dict(base_batch_size=16)
