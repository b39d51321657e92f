# ShapeNetPart as in PointMLP's code: 2048 points with normals, training and validation shapes, no
# augmentation. That code draws points with replacement, also in tests, and leaves coordinates as
# they are; here each is taken once, tests take the first ones, and shapes fill the unit sphere.
dataset_type = 'mmbixt.ShapeNetPart'
data_root = 'data/shapenetcore_partanno_segmentation_benchmark_v0_normal'
num_points = 2048
train_pipeline = [
    dict(type='mmbixt.SamplePoints', num_points=num_points, random=True),
    dict(type='mmbixt.UnitSphere'),
    dict(type='mmbixt.PackPoints', keys=['category', 'parts']),
]
test_pipeline = [
    dict(type='mmbixt.SamplePoints', num_points=num_points, random=False),
    dict(type='mmbixt.UnitSphere'),
    dict(type='mmbixt.PackPoints', keys=['category', 'parts']),
]
# 32 shapes on one GPU
train_dataloader = dict(
    batch_size=32,
    num_workers=8,
    persistent_workers=True,
    pin_memory=True,
    drop_last=True,
    collate_fn=dict(type='default_collate'),
    sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        split='trainval',
        normals=True,
        pipeline=train_pipeline,
    ),
)
val_dataloader = dict(
    batch_size=32,
    num_workers=8,
    persistent_workers=True,
    pin_memory=True,
    collate_fn=dict(type='default_collate'),
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        split='test',
        normals=True,
        pipeline=test_pipeline,
    ),
)
test_dataloader = val_dataloader

val_evaluator = dict(type='mmbixt.PartIoUMetric')
test_evaluator = val_evaluator

# for --sample
sample_dataset = dict(type='mmbixt.SampleShapes', num_points=256)
