# BiXT's recipe for ImageNet-1k, from the authors' script: LAMB with clipped trust ratios, a warm-up
# of 5 epochs from 1e-6, then a cosine to 1e-5. Their rate changes after each epoch, this one after
# each step. 1024 images per step are 128 on each of 8 GPUs. They train in float16: add --amp.
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='Lamb', lr=2.5e-3, eps=1e-8, weight_decay=0.05, trust_clip=True),
    constructor='mmbixt.FewGroupsConstructor',
    # What has one dimension has no weight decay, and LAMB gives it no trust ratio. Latents and the
    # projection of positions have both.
    paramwise_cfg=dict(norm_decay_mult=0.0, bias_decay_mult=0.0, flat_decay_mult=0.0),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=4e-4, begin=0, end=5, convert_to_iter_based=True),
    dict(
        type='CosineAnnealingLR',
        eta_min=1e-5,
        begin=5,
        end=800,
        T_max=795,
        convert_to_iter_based=True,
    ),
]
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=800, val_interval=1)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
# The learning rate is for 1024 images per step. --auto-scale-lr scales it to another total.
auto_scale_lr = dict(enable=False, base_batch_size=1024)
