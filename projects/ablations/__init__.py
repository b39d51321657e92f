"""Variants that the papers compare with their networks, for mmpretrain."""

from projects.ablations.bixt import BiXTAblation, SequentialAttention

__all__ = ['BiXTAblation', 'SequentialAttention']
