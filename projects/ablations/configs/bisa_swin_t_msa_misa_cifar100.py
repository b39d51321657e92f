_base_ = '../../../configs/bisa_swin/bisa_swin_t_cifar100.py'
custom_imports = dict(imports=['projects.ablations'], allow_failed_imports=False)

# Self-attention first, then inverse self-attention on its output.
model = dict(backbone=dict(type='mmbixt.BiSASwinAblation', bisa_order='msa_misa'))
