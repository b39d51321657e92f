_base_ = '../../../configs/bisa_swin/bisa_swin_t_cifar100.py'
custom_imports = dict(imports=['projects.ablations'], allow_failed_imports=False)

# Inverse self-attention first, then self-attention on its output.
model = dict(backbone=dict(type='mmbixt.BiSASwinAblation', bisa_order='misa_msa'))
