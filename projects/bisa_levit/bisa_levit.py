"""BiSA in LeViT: its first attentions become bi-directional self-attentions.

As in the repository of one of its authors, and as the paper's figures of operations require, these
take the place of LeViT's whole attention, with its batch norms, Hardswish and biases of positions.
"""

from typing import Any

from mmpretrain.models.backbones import LeViT
from mmpretrain.models.backbones.levit import Attention, LinearBatchNorm, Residual
from torch import Tensor, nn

from mmbixt.attention import BidirectionalSelfAttention
from mmbixt.backbones.arch import check_choice
from mmbixt.registry import MODELS


@MODELS.register_module()
class BiSALeViT(LeViT):
    """mmpretrain's LeViT, whose first attentions are bi-directional.

    Args:
        arch: of ``mmpretrain.models.LeViT``; '128s' is the paper's.
        img_size: side of the images, which are square.
        bisa_layers: how many attentions of the first stage are bi-directional, from the first one
            on; 0 for mmpretrain's LeViT.
        lam: share of self-attention: a number from 0 to 1, or 'learned' in each layer. With 0
            inverse self-attention is alone: self-attention is computed, but changes nothing.
        lam_init, branch_norm, projection: of :class:`mmbixt.attention.BidirectionalSelfAttention`.
        options: of ``LeViT``. ``out_indices=(0, 1, 2)`` returns the feature maps of all stages, of
            strides 16, 32 and 64.
    """

    def __init__(
        self,
        arch: str | dict = '128s',
        img_size: int = 224,
        bisa_layers: int = 2,
        lam: float | str = 0.5,
        lam_init: float = 0.5,
        branch_norm: str | None = None,
        projection: str = 'additive',
        **options: Any,
    ) -> None:
        super().__init__(arch, img_size, **options)
        check_choice('bisa_layers', bisa_layers, range(self.depths[0] + 1))
        self.img_size = img_size
        for part in self.modules():
            if isinstance(part, Residual):  # the identity at first, as in LeViT's code
                last = [x for x in part.modules() if isinstance(x, LinearBatchNorm)][-1]
                nn.init.zeros_(last.bn.weight)
        blocks = [block for block in self.stages[0] if isinstance(block.block, Attention)]
        sizes = self.embed_dims[0], self.num_heads[0]
        inverse = dict(lam=lam, lam_init=lam_init, branch_norm=branch_norm, projection=projection)
        for block in blocks[:bisa_layers]:
            block.block = BidirectionalSelfAttention(*sizes, **inverse)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Images (B,3,img_size,img_size) to feature maps, of the stages in ``out_indices``."""
        height, width = x.shape[-2:]
        if (height, width) != (self.img_size, self.img_size):  # others may have as many tokens
            raise ValueError(
                f'BiSALeViT with img_size={self.img_size} needs images of {self.img_size} x '
                f'{self.img_size} pixels, but got {height} x {width}.'
            )
        return super().forward(x)
