_base_ = [
    './_base_/classifier.py',
    '../../../configs/_base_/datasets/imagenet_randaugment.py',
    './_base_/usi_310e.py',
    '../../../configs/_base_/mmpretrain_runtime.py',
]
custom_imports = dict(imports=['projects.bisa_levit'], allow_failed_imports=False)

# USI: RandAugment at level 7, no random erasing, each image three times; test crops of 0.95.
train_pipeline = [*_base_.train_pipeline[:4], dict(type='PackInputs')]
train_pipeline[3].magnitude_level = 7
test_pipeline = _base_.test_pipeline
test_pipeline[1].scale = 235
train_dataloader = dict(
    sampler=dict(type='RepeatAugSampler'), dataset=dict(pipeline=train_pipeline)
)
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
# It evaluates the weights and their average.
custom_hooks = [
    dict(type='EMAHook', momentum=4e-5, evaluate_on_origin=True, priority='ABOVE_NORMAL')
]
