"""BiSA in LeViT: its first attentions become bi-directional self-attentions.

A reading of the paper, not a reproduction: it prints results, parameters and operations of
BiSA-LeViT-128S, but not how the two are combined. Chosen here, because this fits the numbers best
(README.md compares them): queries, keys and values have the width C / h, which
is twice that of LeViT-128S's queries and keys; both attentions share their scores; inverse
self-attention has two projections of width C and one hypernetwork, as in BiSA-Swin, and unlike
there an output projection of its own.

LeViT's batch norms and its Hardswish stay: after queries, keys and values, and around the output
projection of the combined attentions. Its biases of positions are in the shared scores.
"""

from typing import Any

from mmpretrain.models.backbones import LeViT
from mmpretrain.models.backbones.levit import Attention, LinearBatchNorm, Residual
from torch import Tensor, nn

from mmbixt.attention.inverse import BidirectionalSelfAttention
from mmbixt.backbones.arch import check_choice
from mmbixt.registry import MODELS


class LeViTAttention(BidirectionalSelfAttention):
    """BiSA with LeViT's norms, activation and biases.

    Args:
        attention: LeViT's attention, whose place it takes.
        channels: width C of the tokens.
        options: of :class:`mmbixt.attention.inverse.BidirectionalSelfAttention`.
    """

    def __init__(self, attention: Attention, channels: int, **options: Any) -> None:
        super().__init__(channels, attention.num_heads, **options)
        self.qkv = LinearBatchNorm(channels, 3 * channels)
        self.proj = nn.Sequential(attention.proj[0], LinearBatchNorm(channels, channels))
        if self.isa is not None:
            self.isa_proj = nn.Linear(channels, channels, bias=False)
        # a bias for each head and distance (rows, columns); the distance of each pair of tokens
        self.attention_biases = attention.attention_biases
        self.register_buffer('attention_bias_idxs', attention.attention_bias_idxs)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (B,N,C) to (B,N,C)."""
        return super().forward(x, self.attention_biases[:, self.attention_bias_idxs])

    def _branches(self, x: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        plain, inverse = super()._branches(x, bias)
        return plain, self.isa_proj(inverse)


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
        lam_init: initial value of a learned ``lam``, above 0 and below 1.
        branch_norm: None, or 'instance' to normalise both attentions before they are combined
            (inverse self-attention before its output projection).
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
        **options: Any,
    ) -> None:
        super().__init__(arch, img_size, **options)
        check_choice('bisa_layers', bisa_layers, range(self.depths[0] + 1))
        self.img_size = img_size
        blocks = [block for block in self.stages[0] if isinstance(block.block, Attention)]
        inverse = dict(lam=lam, lam_init=lam_init, branch_norm=branch_norm)
        for block in blocks[:bisa_layers]:
            block.block = LeViTAttention(block.block, self.embed_dims[0], **inverse)
        for part in self.modules():
            if isinstance(part, Residual):  # the identity at first, as in LeViT's code
                last = [x for x in part.modules() if isinstance(x, LinearBatchNorm)][-1]
                nn.init.zeros_(last.bn.weight)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Images (B,3,img_size,img_size) to feature maps, of the stages in ``out_indices``."""
        height, width = x.shape[-2:]
        if (height, width) != (self.img_size, self.img_size):  # others may have as many tokens
            raise ValueError(
                f'BiSALeViT with img_size={self.img_size} needs images of {self.img_size} x '
                f'{self.img_size} pixels, but got {height} x {width}.'
            )
        return super().forward(x)
