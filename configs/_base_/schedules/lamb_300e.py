_base_ = './lamb_800e.py'

# BiXT's ablations
param_scheduler = [
    dict(type='LinearLR', start_factor=4e-4, begin=0, end=5, convert_to_iter_based=True),
    dict(
        type='CosineAnnealingLR',
        eta_min=1e-5,
        begin=5,
        end=300,
        T_max=295,
        convert_to_iter_based=True,
    ),
]
train_cfg = dict(max_epochs=300)
