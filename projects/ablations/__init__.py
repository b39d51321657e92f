"""Variants that the papers compare with their networks, for mmpretrain."""

from projects.ablations.biformer import BiFormerAblation
from projects.ablations.bisa_swin import BiSASwinAblation
from projects.ablations.bixt import BiXTAblation, SequentialAttention
from projects.ablations.xcit import XCiTAblation

__all__ = [
    'BiFormerAblation',
    'BiSASwinAblation',
    'BiXTAblation',
    'SequentialAttention',
    'XCiTAblation',
]
