"""Variants that BiXT's paper compares with BiXT."""

from mmbixt.visualization.attention import DRAWN_BY, bixt
from projects.bixt_ablations.bixt_ablation import BiXTAblation
from projects.bixt_ablations.sequential import SequentialAttention

__all__ = ['BiXTAblation', 'SequentialAttention']

DRAWN_BY[SequentialAttention] = bixt
