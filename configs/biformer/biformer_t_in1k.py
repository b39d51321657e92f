_base_ = './biformer_s_in1k.py'

# The paper does not say the drop path of this size; 0.1 is the default of the authors' script.
model = dict(backbone=dict(arch='tiny', drop_path_rate=0.1))
