from mmbixt.frameworks import UNUSABLE, register_missing
from mmbixt.registry import MODELS

__all__ = ['LinearTokenHead']

try:
    from mmbixt.decode_heads.linear_token_head import LinearTokenHead
except UNUSABLE as error:
    __getattr__ = register_missing(MODELS, ['LinearTokenHead'], 'mmseg', error)
