_base_ = './bisa_levit_128s_cifar100.py'

# USI's distillation: the teacher's loss counts five times as much as the labels'. The paper's
# teacher is open: this is USI's network, with a file of it that was trained on CIFAR-100.
model = dict(
    type='mmbixt.DistilledClassifier',
    teacher=dict(
        model_name='tresnet_v2_l',
        num_classes=100,
        checkpoint_path='checkpoints/tresnet_v2_l_cifar100.pth',
    ),
    distillation='soft',
    alpha=5 / 6,
    temperature=1.0,
)
