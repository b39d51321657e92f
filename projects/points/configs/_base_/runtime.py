# Runs of mmengine alone.
custom_imports = dict(imports=['projects.points'], allow_failed_imports=False)

default_scope = 'mmengine'
default_hooks = dict(
    timer=dict(type='IterTimerHook'),
    logger=dict(type='LoggerHook', interval=50),
    param_scheduler=dict(type='ParamSchedulerHook'),
    checkpoint=dict(type='CheckpointHook', interval=1, max_keep_ckpts=3, save_best='auto'),
    sampler_seed=dict(type='DistSamplerSeedHook'),
    exact_resume=dict(type='mmbixt.ExactResumeHook'),
    sanity=dict(type='mmbixt.SanityHook'),
    finite_loss=dict(type='mmbixt.FiniteLossHook'),
)
env_cfg = dict(
    cudnn_benchmark=False,
    mp_cfg=dict(mp_start_method='fork', opencv_num_threads=0),
    dist_cfg=dict(backend='nccl'),
)
sync_bn = 'torch'
vis_backends = [dict(type='LocalVisBackend')]
visualizer = dict(type='Visualizer', vis_backends=vis_backends, name='visualizer')
log_processor = dict(type='LogProcessor', by_epoch=True)
log_level = 'INFO'
load_from = None
resume = False
