_base_ = '../../../../configs/_base_/schedules/adamw_300e.py'

# USI (https://github.com/Alibaba-MIIL/Solving_ImageNet), by the defaults of its script: 2e-3 for
# 1024 images a step after a warm-up from 1e-4, a cosine, and ten epochs at its end.
optim_wrapper = dict(
    optimizer=dict(lr=2e-3, weight_decay=0.02),
    paramwise_cfg=dict(custom_keys={'attention_biases': dict(decay_mult=0.0)}),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.05, begin=0, end=5, convert_to_iter_based=True),
    dict(
        type='CosineAnnealingLR',
        eta_min=1e-6,
        begin=5,
        end=300,
        T_max=295,
        convert_to_iter_based=True,
    ),
    dict(type='ConstantLR', factor=1.0, begin=300, end=310),
]
train_cfg = dict(max_epochs=310)
