_base_ = './bisa_swin_t_cifar100.py'

# Inverse self-attention as in the authors' code, not as in the paper's equation (2).
model = dict(backbone=dict(projection='additive'))
