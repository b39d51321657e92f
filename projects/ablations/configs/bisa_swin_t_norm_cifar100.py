_base_ = '../../../configs/bisa_swin/bisa_swin_t_cifar100.py'
custom_imports = dict(imports=['projects.ablations'], allow_failed_imports=False)

# An instance norm of both branches.
model = dict(backbone=dict(type='mmbixt.BiSASwinAblation', branch_norm='instance'))
