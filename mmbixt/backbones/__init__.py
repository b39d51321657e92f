"""One file per paper."""

from mmbixt.backbones.biformer import BiFormer
from mmbixt.backbones.bisa_swin import BiSASwin
from mmbixt.backbones.bixt import BiXT
from mmbixt.backbones.xcit import XCiT

__all__ = ['BiFormer', 'BiSASwin', 'BiXT', 'XCiT']
