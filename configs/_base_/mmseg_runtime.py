# Imported first: inferencers read weights before they build the model, and mmbixt must read them
# (it knows names such as xcit://ade-semfpn-small12-p16, and executes no code).
custom_imports = dict(imports=['mmbixt.registry'], allow_failed_imports=False)

default_scope = 'mmseg'
default_hooks = dict(
    timer=dict(type='IterTimerHook'),
    logger=dict(type='LoggerHook', interval=50, log_metric_by_epoch=False),
    param_scheduler=dict(type='ParamSchedulerHook'),
    checkpoint=dict(
        type='CheckpointHook', by_epoch=False, interval=8000, max_keep_ckpts=3, save_best='mIoU'
    ),
    sampler_seed=dict(type='DistSamplerSeedHook'),
    exact_resume=dict(type='mmbixt.ExactResumeHook'),
    sanity=dict(type='mmbixt.SanityHook'),
    finite_loss=dict(type='mmbixt.FiniteLossHook'),
    visualization=dict(type='SegVisualizationHook'),
)
env_cfg = dict(
    cudnn_benchmark=True,
    mp_cfg=dict(mp_start_method='fork', opencv_num_threads=0),
    dist_cfg=dict(backend='nccl'),
)
# All batch norms, also of backbones, are computed over all GPUs: otherwise each GPU validates with
# its own statistics.
sync_bn = 'torch'
vis_backends = [dict(type='LocalVisBackend')]
visualizer = dict(type='SegLocalVisualizer', vis_backends=vis_backends, name='visualizer')
log_processor = dict(type='LogProcessor', by_epoch=False)
log_level = 'INFO'
load_from = None
resume = False

tta_model = dict(type='SegTTAModel')
