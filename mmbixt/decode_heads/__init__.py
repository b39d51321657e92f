from mmbixt.frameworks import UNUSABLE, stand_in
from mmbixt.registry import MODELS

__all__ = ['LinearTokenHead']

try:
    from mmbixt.decode_heads.linear_token_head import LinearTokenHead
except UNUSABLE as error:
    __getattr__ = stand_in(MODELS, __all__, framework='mmseg', error=error)
