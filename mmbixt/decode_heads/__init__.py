from mmbixt.frameworks import import_problem, register_missing
from mmbixt.registry import MODELS

__all__ = ['LatentMaskHead', 'LinearTokenHead', 'SemanticLatentMaskHead']

missing = {}  # by the name of a head: what raises the error about a missing framework
mmseg_problem, mmdet_problem = import_problem('mmseg.models'), import_problem('mmdet.models')
if mmseg_problem is None:
    from mmbixt.decode_heads.linear_token_head import LinearTokenHead
else:
    for name in ('LinearTokenHead', 'SemanticLatentMaskHead'):
        missing[name] = register_missing(MODELS, name, 'mmseg', mmseg_problem)
if mmdet_problem is None:
    from mmbixt.decode_heads.latent_mask_head import LatentMaskHead
else:
    for name in {'LatentMaskHead', 'SemanticLatentMaskHead'} - missing.keys():
        missing[name] = register_missing(MODELS, name, 'mmdet', mmdet_problem)
if not missing:
    from mmbixt.decode_heads.semantic_latent_mask_head import SemanticLatentMaskHead


def __getattr__(name: str) -> object:
    if name in missing:
        missing[name](name)
    raise AttributeError(name)
