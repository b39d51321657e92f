_base_ = './adamw_1x.py'

# 36 epochs; the learning rate is divided by 10 after 27 and 33
param_scheduler = [
    dict(type='LinearLR', start_factor=0.001, by_epoch=False, begin=0, end=500),
    dict(type='MultiStepLR', begin=0, end=36, by_epoch=True, milestones=[27, 33], gamma=0.1),
]
train_cfg = dict(max_epochs=36)
