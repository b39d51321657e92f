"""Mathematics on tensors: torch only, no weights, no OpenMMLab import."""

from mmbixt.ops.bidirectional_attention import bidirectional_attention
from mmbixt.ops.paths import ops_path, use_ops

__all__ = ['bidirectional_attention', 'ops_path', 'use_ops']
