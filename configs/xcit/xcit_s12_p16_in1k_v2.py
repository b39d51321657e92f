_base_ = './xcit_s12_p16_in1k.py'

# The test on ImageNet-V2 (matched frequency). Its folders are numbers: in the order of their names
# 10 would be class 2, so that labels are read from a file, which docs/datasets.md makes.
test_dataloader = dict(
    dataset=dict(
        data_root='data/imagenetv2-matched-frequency-format-val', split='', ann_file='labels.txt'
    )
)
