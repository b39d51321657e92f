"""Variants that BiXT's paper compares with BiXT."""

from projects.bixt_ablations.bixt_ablation import BiXTAblation
from projects.bixt_ablations.sequential import SequentialAttention

__all__ = ['BiXTAblation', 'SequentialAttention']
