import torch
from torch import Tensor, nn

from mmbixt.layers.mlp import Mlp
from mmbixt.layers.self_attention import ClassAttention


class ClassAttentionLayer(nn.Module):
    """Class attention and an MLP of the class token, as in XCiT's code.

    For tokens x = [c, p], where c is the class token::

        x' = x + gamma1 * [attn(norm1(x)), norm1(p)]
        x' = norm2(x')                   with tokens_norm; else only c' = norm2(c')
        x'' = [c' + gamma2 * mlp(c'), 2 p']
    """

    def __init__(
        self, channels: int, num_heads: int, hidden: int, layer_scale: float, tokens_norm: bool
    ) -> None:
        super().__init__()
        self.tokens_norm = tokens_norm
        self.norm1 = nn.LayerNorm(channels, eps=1e-6)
        self.attn = ClassAttention(channels, num_heads)
        self.norm2 = nn.LayerNorm(channels, eps=1e-6)
        self.mlp = Mlp(channels, hidden)
        self.gamma1 = nn.Parameter(torch.full((channels,), float(layer_scale)))
        self.gamma2 = nn.Parameter(torch.full((channels,), float(layer_scale)))

    def forward(self, tokens: Tensor) -> Tensor:
        """(B,1+N,C) to (B,1+N,C), the class token first."""
        normed = self.norm1(tokens)
        update = torch.cat((self.attn(normed), normed[:, 1:]), dim=1)
        tokens = tokens + self.gamma1 * update
        if self.tokens_norm:
            tokens = self.norm2(tokens)
            class_token, others = tokens[:, :1], tokens[:, 1:]
        else:
            class_token, others = self.norm2(tokens[:, :1]), tokens[:, 1:]
        class_token = class_token + self.gamma2 * self.mlp(class_token)
        return torch.cat((class_token, 2 * others), dim=1)
