# ModelNet40 as in PointMLP's code: HDF5 files, which need h5py, and of each shape the first 1024
# points as they are, without normals.
dataset_type = 'mmbixt.ModelNet40'
data_root = 'data/modelnet40_ply_hdf5_2048'
num_points = 1024
train_pipeline = [
    dict(type='mmbixt.SamplePoints', num_points=num_points, random=True),
    dict(type='mmbixt.ScaleAndShift'),
    dict(type='mmbixt.PackPoints', keys=['label']),
]
test_pipeline = [
    dict(type='mmbixt.SamplePoints', num_points=num_points, random=False),
    dict(type='mmbixt.PackPoints', keys=['label']),
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
        form='hdf5',
        split='train',
        num_points=num_points,
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
        form='hdf5',
        split='test',
        num_points=num_points,
        pipeline=test_pipeline,
    ),
)
test_dataloader = val_dataloader

val_evaluator = dict(type='mmbixt.ShapeAccuracyMetric')
test_evaluator = val_evaluator

# for --sample
sample_dataset = dict(type='mmbixt.SampleShapes', num_points=256)
