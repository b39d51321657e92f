_base_ = './bisa_swin_t_cifar100.py'

# In the second stage instead of the first.
model = dict(backbone=dict(bisa_stages=(1,)))
