# Transfer to a folder of images, as in the paper's Appendix D.2. The authors say that they mostly
# follow DeiT's settings for CIFAR-10 and Cars: 1000 epochs of 768 images, SGD with a learning rate
# of 0.01 and weight decay of 1e-4, no random erasing, no stochastic depth, all else as on ImageNet.
# Table D.2 marks its XCiTs as distilled.
_base_ = './xcit_s12_p16_in1k.py'

num_classes = 102  # those of Flowers-102
# train/CLASS/*.jpg and val/CLASS/*.jpg, with the same classes in both
data_root = 'data/flowers'
metainfo = dict(classes=None)  # not those of ImageNet

weights = dict(type='Pretrained', checkpoint='xcit://small12-p16-dist')
model = dict(
    backbone=dict(drop_path_rate=0.0, init_cfg=weights),
    neck=dict(init_cfg=weights),
    head=dict(num_classes=num_classes),
)
data_preprocessor = dict(num_classes=num_classes)
train_pipeline = [step for step in _base_.train_pipeline if step.type != 'RandomErasing']
train_dataloader = dict(
    batch_size=96, dataset=dict(data_root=data_root, metainfo=metainfo, pipeline=train_pipeline)
)
val_dataloader = dict(dataset=dict(data_root=data_root, metainfo=metainfo))
test_dataloader = val_dataloader
val_evaluator = dict(topk=(1,))
test_evaluator = val_evaluator

optimizer = dict(type='SGD', lr=0.01, momentum=0.9, nesterov=True, weight_decay=1e-4)
optim_wrapper = dict(optimizer=dict(_delete_=True, **optimizer))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-4, begin=0, end=5, convert_to_iter_based=True),
    dict(
        type='CosineAnnealingLR',
        eta_min=1e-5,
        begin=5,
        end=1000,
        T_max=995,
        convert_to_iter_based=True,
    ),
]
train_cfg = dict(max_epochs=1000)
auto_scale_lr = dict(base_batch_size=768)
