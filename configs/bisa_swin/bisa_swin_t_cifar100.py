_base_ = [
    '../_base_/models/bisa_swin_t_classifier.py',
    '../_base_/datasets/cifar100.py',
    '../_base_/schedules/adamw_300e.py',
    '../_base_/mmpretrain_runtime.py',
]

model = dict(head=dict(num_classes=100))
optim_wrapper = dict(clip_grad=dict(max_norm=5.0))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=20, convert_to_iter_based=True),
    dict(
        type='CosineAnnealingLR',
        eta_min=1e-5,
        begin=20,
        end=600,
        T_max=580,
        convert_to_iter_based=True,
    ),
]
train_cfg = dict(max_epochs=600)
