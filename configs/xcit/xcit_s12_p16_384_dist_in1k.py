# Fine-tuning at 384 pixels, also distilled. The schedule of the paper is open: this is the one of
# DeiT's README for 384 pixels: 30 epochs of 512 images, a constant learning rate of 5e-6 after five
# epochs of warm-up from 1e-6, weight decay of 1e-8. The teacher sees the same images;
# that of Table 1 was fine-tuned at 384 pixels, too, but is not published.
_base_ = './xcit_s12_p16_dist_in1k.py'

load_from = 'xcit://small12-p16-dist'
train_pipeline = _base_.train_pipeline
train_pipeline[1].scale = 384
test_pipeline = _base_.test_pipeline
test_pipeline[1].scale = 384
test_pipeline[2].crop_size = 384
train_dataloader = dict(batch_size=64, dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
optim_wrapper = dict(optimizer=dict(lr=5e-6, weight_decay=1e-8))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.2, begin=0, end=5, convert_to_iter_based=True),
    dict(type='ConstantLR', factor=1.0, begin=5, end=30),
]
train_cfg = dict(max_epochs=30)
auto_scale_lr = dict(base_batch_size=512)
