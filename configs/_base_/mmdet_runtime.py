# Imported first: inferencers read weights before they build the model, and mmbixt must read them
# (it knows names such as xcit://ade-semfpn-small12-p16, and executes no code).
custom_imports = dict(imports=['mmbixt.registry'], allow_failed_imports=False)

default_scope = 'mmdet'
default_hooks = dict(
    timer=dict(type='IterTimerHook'),
    logger=dict(type='LoggerHook', interval=50),
    param_scheduler=dict(type='ParamSchedulerHook'),
    checkpoint=dict(type='CheckpointHook', interval=1, max_keep_ckpts=3, save_best='coco/bbox_mAP'),
    sampler_seed=dict(type='DistSamplerSeedHook'),
    exact_resume=dict(type='mmbixt.ExactResumeHook'),
    sanity=dict(type='mmbixt.SanityHook'),
    finite_loss=dict(type='mmbixt.FiniteLossHook'),
    visualization=dict(type='DetVisualizationHook'),
)
env_cfg = dict(
    cudnn_benchmark=False,
    mp_cfg=dict(mp_start_method='fork', opencv_num_threads=0),
    dist_cfg=dict(backend='nccl'),
)
vis_backends = [dict(type='LocalVisBackend')]
visualizer = dict(type='DetLocalVisualizer', vis_backends=vis_backends, name='visualizer')
log_processor = dict(type='LogProcessor', window_size=50, by_epoch=True)
log_level = 'INFO'
load_from = None
resume = False
