_base_ = './bisa_swin_t_cifar100.py'

# An instance norm of both branches, and a learned share of self-attention in each block.
model = dict(backbone=dict(branch_norm='instance', lam='learned'))
