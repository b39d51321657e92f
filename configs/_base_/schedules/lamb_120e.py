_base_ = './lamb_800e.py'

# BiXT's comparison with other attentions, of which some layers share weights. The authors searched
# the learning rate of each, down from 4e-3 (Appendix A.3), and do not print it: here it is 2.5e-3.
optim_wrapper = dict(paramwise_cfg=dict(bypass_duplicate=True))
param_scheduler = [
    dict(type='LinearLR', start_factor=4e-4, begin=0, end=5, convert_to_iter_based=True),
    dict(
        type='CosineAnnealingLR',
        eta_min=1e-5,
        begin=5,
        end=120,
        T_max=115,
        convert_to_iter_based=True,
    ),
]
train_cfg = dict(max_epochs=120)
