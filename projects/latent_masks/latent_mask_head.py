"""A class and a mask from each latent of BiXT, trained as MaskFormer."""

from collections.abc import Sequence

import torch
from mmdet.models.dense_heads import MaskFormerHead
from mmdet.models.dense_heads.anchor_free_head import AnchorFreeHead
from mmdet.registry import TASK_UTILS
from torch import Tensor, nn

from mmbixt.layers import map_to_tokens
from mmbixt.registry import MODELS

# MaskFormer's
LOSS_MASK = dict(type='mmdet.FocalLoss', use_sigmoid=True, gamma=2.0, alpha=0.25, loss_weight=20.0)
LOSS_DICE = dict(
    type='mmdet.DiceLoss',
    use_sigmoid=True,
    activate=True,
    naive_dice=True,
    eps=1.0,
    loss_weight=1.0,
)
TRAIN_CFG = dict(
    assigner=dict(
        type='mmdet.HungarianAssigner',
        match_costs=[
            dict(type='mmdet.ClassificationCost', weight=1.0),
            dict(type='mmdet.FocalLossCost', weight=20.0, binary_input=True),
            dict(type='mmdet.DiceCost', weight=1.0, pred_act=True, eps=1.0),
        ],
    ),
    sampler=dict(type='mmdet.MaskPseudoSampler'),
)


@MODELS.register_module()
class LatentMaskHead(MaskFormerHead):
    """A class from each latent, and a mask from its product with the tokens.

    For mmdet's ``MaskFormer``, with its losses, matching and results. In place of its pixel decoder
    and its transformer decoder there is the backbone: ``BiXT(out_latents=True)``, with an adapter
    of one stride for all levels as neck. Latents of earlier layers have losses of their own; their
    masks are products with the same tokens, those of all levels together.

    This head is of mmbixt, not of the paper.

    Args:
        in_channels: channels C of each feature map, and of the latents; the same for all.
        num_things_classes: classes of things, which come first.
        num_stuff_classes: classes of stuff; 0 for instance segmentation.
        num_queries: latents M of the backbone.
        no_object_weight: weight of latents without a segment in the loss of the classes.
        loss_mask, loss_dice: losses of the masks; the default is MaskFormer's.
        train_cfg: assigner and sampler; the default is MaskFormer's.
        test_cfg: not used; mmdet's fusion head has its own.
        init_cfg: mmengine's initialisation.
    """

    def __init__(
        self,
        in_channels: Sequence[int],
        num_things_classes: int = 80,
        num_stuff_classes: int = 53,
        num_queries: int = 64,
        no_object_weight: float = 0.1,
        loss_mask: dict = LOSS_MASK,
        loss_dice: dict = LOSS_DICE,
        train_cfg: dict | None = None,
        test_cfg: dict | None = None,
        init_cfg: dict | None = None,
    ) -> None:
        super(AnchorFreeHead, self).__init__(init_cfg=init_cfg)  # without MaskFormer's decoders
        self.num_things_classes = num_things_classes
        self.num_stuff_classes = num_stuff_classes
        self.num_classes = num_things_classes + num_stuff_classes
        self.num_queries = num_queries
        self.train_cfg, self.test_cfg = train_cfg or TRAIN_CFG, test_cfg
        self.assigner = TASK_UTILS.build(self.train_cfg['assigner'])
        self.sampler = TASK_UTILS.build(self.train_cfg['sampler'], default_args=dict(context=self))

        channels = in_channels[0]
        self.token_norm = nn.LayerNorm(sum(in_channels), eps=1e-6)
        self.token_embed = nn.Linear(sum(in_channels), channels)
        self.latent_norm = nn.LayerNorm(channels, eps=1e-6)
        self.cls_embed = nn.Linear(channels, self.num_classes + 1)
        self.mask_embed = nn.Sequential(
            nn.Linear(channels, channels),
            nn.ReLU(inplace=True),
            nn.Linear(channels, channels),
            nn.ReLU(inplace=True),
            nn.Linear(channels, channels),
        )
        self.class_weight = [1.0] * self.num_classes + [no_object_weight]
        loss_cls = dict(type='mmdet.CrossEntropyLoss', class_weight=self.class_weight)
        self.loss_cls = MODELS.build(loss_cls)
        self.loss_mask = MODELS.build(loss_mask)
        self.loss_dice = MODELS.build(loss_dice)

    def init_weights(self) -> None:
        super(MaskFormerHead, self).init_weights()

    def forward(
        self, x: Sequence[Tensor], batch_data_samples: Sequence | None = None
    ) -> tuple[Tensor, Tensor]:
        """L feature maps (B,C,H,W) and the latents (B,M,C) of L layers to classes and masks.

        Returns:
            Logits of the classes and 'no object' (L,B,M,K+1), and of the masks (L,B,M,H,W).
        """
        levels = len(x) // 2
        tokens = torch.cat([map_to_tokens(level) for level in x[:levels]], dim=-1)
        tokens = self.token_embed(self.token_norm(tokens))
        latents = self.latent_norm(torch.stack(x[levels:]))
        masks = torch.einsum('lbmc,bnc->lbmn', self.mask_embed(latents), tokens)
        # losses are sums over all pixels, which are beyond half precision; mmdet counts the pixels
        # in the precision of the classes
        masks = masks.float().unflatten(-1, x[0].shape[-2:])
        return self.cls_embed(latents).float(), masks
