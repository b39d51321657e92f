# Hard distillation as in the paper: the mean of the losses for the labels and for the teacher's
# classes, with RegNetY-16GF of DeiT's authors. Its weights are downloaded when training starts.
_base_ = './xcit_s12_p16_in1k.py'

model = dict(type='mmbixt.DistilledClassifier', teacher='regnety_160.deit_in1k')
