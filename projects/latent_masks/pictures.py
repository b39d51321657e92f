"""Which latent of BiXT took which segment: the masks of a model with ``LatentMaskHead``."""

from collections.abc import Sequence

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from torch import Tensor, nn

from mmbixt.visualization.attention.drawing import Panel, Scale, Scene, sheet

COLOURS = torch.tensor(colormaps['tab10'].colors)[:6]  # of the latents drawn
OTHERS = 0.6  # grey, for latents without their own colour
SCALE = Scale(Normalize(0, 1), 'probability that the pixel is in the mask', (0, 0.5, 1))
SENTENCE = (
    'Each latent predicts a class and a mask. A pixel belongs to the latent with the highest '
    'product of the two probabilities, and has its colour (grey: other latents). The other panels '
    'are the masks of the latents with the most pixels, with their classes and shares of the image.'
)


@torch.no_grad()
def latent_masks_figure(
    model: nn.Module,
    inputs: Tensor,
    image: np.ndarray,
    classes: Sequence[str],
    content: tuple[int, int] | None = None,
) -> Figure:
    """The latents that took the largest segments of an image, and their masks.

    Args:
        model: mmseg's ``EncoderDecoder`` or mmdet's ``MaskFormer`` with mmbixt's head, in eval
            mode.
        inputs: the preprocessed image, (1,3,H,W).
        image: the image to draw on, (h,w,3) in uint8, RGB, of any size.
        classes: names of the classes.
        content: (rows, columns) of the inputs that the image fills, from the top left; the rest is
            padding. Default: all.
    """
    height, width = content or inputs.shape[2:]
    head = getattr(model, 'panoptic_head', None) or model.decode_head
    logits, masks = (x[-1, 0].cpu() for x in head(model.extract_feat(inputs)))
    stride = (getattr(model, 'neck', None) or model.backbone).out_strides[0]
    masks = masks.sigmoid()[:, : -(-height // stride), : -(-width // stride)]
    scores, labels = logits.softmax(-1)[:, :-1].max(-1)
    chosen = (scores[:, None, None] * masks).argmax(0)
    counts = chosen.flatten().bincount(minlength=len(masks))
    shown = [i for i in counts.argsort(descending=True).tolist() if counts[i]][: len(COLOURS)]
    colours = torch.full((len(masks), 3), OTHERS)
    colours[shown] = COLOURS[: len(shown)]
    panels = [Panel('image'), Panel('latent of each pixel', colours[chosen], stride)]
    for i, colour in zip(shown, COLOURS.tolist(), strict=False):
        caption = f'latent {i}: {classes[labels[i]]}, {counts[i] / counts.sum():.0%}'
        panels.append(Panel(caption, masks[i], stride, colour))
    title = f'BiXT: the segments of {len(shown)} of {len(masks)} latents'
    scene = Scene(image, height, width, (0, 0))
    return sheet(scene, panels, title, SENTENCE, columns=4, scale=SCALE)[0]
