_base_ = './bixt_ti_l64_p16_in1k.py'

# 30 epochs at 384 pixels after those at 224, as in the authors' script: 512 images a step, a
# cosine from 2.5e-5 to 1e-5 without a warm-up. The paper has a learning rate of 4e-5.
load_from = 'bixt://tiny-16'

train_pipeline = [dict(step) for step in _base_.train_pipeline]
train_pipeline[1]['scale'] = 384
test_pipeline = [dict(step) for step in _base_.test_pipeline]
test_pipeline[1]['scale'] = 438  # 384 / 0.875, the authors' crop_pct at both sizes
test_pipeline[2]['crop_size'] = 384
train_dataloader = dict(batch_size=64, dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader

optim_wrapper = dict(optimizer=dict(lr=2.5e-5))
param_scheduler = [
    dict(
        type='CosineAnnealingLR',
        eta_min=1e-5,
        begin=0,
        end=30,
        T_max=30,
        convert_to_iter_based=True,
    )
]
train_cfg = dict(max_epochs=30)
auto_scale_lr = dict(base_batch_size=512)
