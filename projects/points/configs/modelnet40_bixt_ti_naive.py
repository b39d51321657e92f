_base_ = ['./_base_/modelnet40.py', './_base_/runtime.py']

model = dict(
    type='mmbixt.PointClassifier',
    backbone=dict(type='mmbixt.PointBiXT', arch='tiny', depth=12),
    num_classes=40,
    label_smoothing=0.2 * 40 / 39,  # 0.2 for the other 39 classes, as in PointMLP's code
)

# PointMLP's regime
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='SGD', lr=0.1, momentum=0.9, weight_decay=2e-4),
    clip_grad=dict(max_norm=1),
)
param_scheduler = [
    dict(type='CosineAnnealingLR', eta_min=0.005, begin=0, end=300, T_max=300),
]
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=300, val_interval=1)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
# The learning rate is for 32 shapes per step. --auto-scale-lr scales it to another total.
auto_scale_lr = dict(enable=False, base_batch_size=32)
