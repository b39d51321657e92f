"""The latents of BiXT as the queries of a mask classifier, for mmseg and mmdet."""

from projects.latent_masks.latent_mask_head import LatentMaskHead
from projects.latent_masks.semantic_latent_mask_head import SemanticLatentMaskHead

__all__ = ['LatentMaskHead', 'SemanticLatentMaskHead']
