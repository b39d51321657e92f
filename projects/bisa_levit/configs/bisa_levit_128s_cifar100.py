_base_ = [
    './_base_/classifier.py',
    '../../../configs/_base_/datasets/cifar100.py',
    './_base_/usi_310e.py',
    '../../../configs/_base_/mmpretrain_runtime.py',
]
custom_imports = dict(imports=['projects.bisa_levit'], allow_failed_imports=False)

model = dict(head=dict(num_classes=100))
# USI: RandAugment at level 7, no random erasing, each image three times; test crops of 0.95. An
# average of the weights over 25,000 iterations, as on ImageNet, would be longer than this training.
train_pipeline = [step for step in _base_.train_pipeline if step.type != 'RandomErasing']
train_pipeline[4].magnitude_level = 7  # of RandAugment
test_pipeline = _base_.test_pipeline
test_pipeline[0].scale = 235
train_dataloader = dict(
    sampler=dict(type='RepeatAugSampler'), dataset=dict(pipeline=train_pipeline)
)
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
