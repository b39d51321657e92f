"""BiSA in mmpretrain's LeViT."""

from projects.bisa_levit.bisa_levit import BiSALeViT

__all__ = ['BiSALeViT']
