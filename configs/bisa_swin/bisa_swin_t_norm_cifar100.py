_base_ = './bisa_swin_t_cifar100.py'

# An instance norm of both branches.
model = dict(backbone=dict(branch_norm='instance'))
