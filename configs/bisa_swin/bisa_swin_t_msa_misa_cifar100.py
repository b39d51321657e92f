_base_ = './bisa_swin_t_cifar100.py'

# Self-attention first, then inverse self-attention on its output.
model = dict(backbone=dict(bisa_order='msa_misa'))
