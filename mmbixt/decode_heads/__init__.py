from mmbixt.frameworks import import_problem, register_missing
from mmbixt.registry import MODELS

__all__ = ['LinearTokenHead']

problem = import_problem('mmseg.models')
if problem is None:
    from mmbixt.decode_heads.linear_token_head import LinearTokenHead
else:
    __getattr__ = register_missing(MODELS, 'LinearTokenHead', 'mmseg', problem)
