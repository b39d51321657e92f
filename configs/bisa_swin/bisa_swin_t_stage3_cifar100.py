_base_ = './bisa_swin_t_cifar100.py'

model = dict(backbone=dict(bisa_stages=(2,)))
