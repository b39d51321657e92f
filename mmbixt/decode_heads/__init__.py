from mmbixt.frameworks import IMPORT_ERRORS, register_missing
from mmbixt.registry import MODELS

__all__ = ['LinearTokenHead']

try:
    from mmbixt.decode_heads.linear_token_head import LinearTokenHead
except IMPORT_ERRORS as error:
    __getattr__ = register_missing(MODELS, ['LinearTokenHead'], 'mmseg', error)
