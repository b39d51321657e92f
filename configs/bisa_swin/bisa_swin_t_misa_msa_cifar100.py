_base_ = './bisa_swin_t_cifar100.py'

# Inverse self-attention first, then self-attention on its output.
model = dict(backbone=dict(bisa_order='misa_msa'))
