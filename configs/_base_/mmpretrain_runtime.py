# Imported first: inferencers read weights before they build the model, and mmbixt must read them
# (it knows names such as xcit://tiny12-p16, and executes no code).
custom_imports = dict(imports=['mmbixt.registry'], allow_failed_imports=False)

default_scope = 'mmpretrain'
default_hooks = dict(
    timer=dict(type='IterTimerHook'),
    logger=dict(type='LoggerHook', interval=100),
    param_scheduler=dict(type='ParamSchedulerHook'),
    checkpoint=dict(type='CheckpointHook', interval=1, max_keep_ckpts=3, save_best='accuracy/top1'),
    sampler_seed=dict(type='DistSamplerSeedHook'),
    exact_resume=dict(type='mmbixt.ExactResumeHook'),
    sanity=dict(type='mmbixt.SanityHook'),
    finite_loss=dict(type='mmbixt.FiniteLossHook'),
    visualization=dict(type='VisualizationHook', enable=False),
)
env_cfg = dict(
    cudnn_benchmark=True,
    mp_cfg=dict(mp_start_method='fork', opencv_num_threads=0),
    dist_cfg=dict(backend='nccl'),
)
# All batch norms are computed over all GPUs: otherwise each GPU validates with its own
# statistics.
sync_bn = 'torch'
vis_backends = [dict(type='LocalVisBackend')]
visualizer = dict(type='UniversalVisualizer', vis_backends=vis_backends, name='visualizer')
log_processor = dict(type='LogProcessor', by_epoch=True)
log_level = 'INFO'
load_from = None
resume = False
