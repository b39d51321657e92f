_base_ = ['./_base_/shapenetpart.py', './_base_/runtime.py']

model = dict(
    type='mmbixt.PartSegmentor',
    backbone=dict(
        type='mmbixt.PointBiXT', axes=6, arch='tiny', depth=12, dense=True, num_categories=16
    ),
    num_parts=50,
)

# PointMLP's regime
optim_wrapper = dict(type='OptimWrapper', optimizer=dict(type='Adam', lr=3e-3))
param_scheduler = [dict(type='StepLR', step_size=40, gamma=0.5, begin=0, end=350)]
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=350, val_interval=1)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
# The learning rate is for 32 shapes per step. --auto-scale-lr scales it to another total.
auto_scale_lr = dict(enable=False, base_batch_size=32)
