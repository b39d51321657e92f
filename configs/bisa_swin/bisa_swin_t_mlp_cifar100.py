_base_ = './bisa_swin_t_cifar100.py'

# An MLP with as many weights instead of the hypernetwork.
model = dict(backbone=dict(projection='mlp'))
