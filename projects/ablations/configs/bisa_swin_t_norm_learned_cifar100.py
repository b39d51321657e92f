_base_ = './bisa_swin_t_norm_cifar100.py'

# An instance norm of both branches, and a learned share of self-attention in each block.
model = dict(backbone=dict(lam='learned'))
