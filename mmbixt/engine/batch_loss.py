"""The losses of a batch as a function of tensors, of which a CUDA graph can be made."""

from collections.abc import Sequence

import torch
from mmengine.dist import get_world_size
from mmengine.structures import BaseDataElement, PixelData
from torch import Tensor, nn

from mmbixt.engine.segmentation_loss import replace_losses


class BatchLoss(nn.Module):
    """The losses of a batch as a function of tensors alone.

    ``model.loss`` becomes :meth:`loss` until :meth:`release`. The first call in training gives
    the example for which :meth:`capture` makes the graph: ``example`` has images (B,3,H,W) and
    labels (B,...). ``names`` of losses are empty as long as there is no graph.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.ordinary = model, model.loss
        self.example: tuple[Tensor, ...] = ()
        self.names: tuple[str, ...] = ()
        model.loss = self.loss
        self.heads = replace_losses(model)

    def release(self) -> None:
        """Give the model its own methods again."""
        del self.model.loss
        for head in self.heads:
            del head.loss_by_feat

    def loss(
        self, images: Tensor, samples: Sequence[BaseDataElement] | None = None
    ) -> dict[str, Tensor]:
        """The losses of images (B,3,H,W), by the graph if it is for batches like this one."""
        is_usual = isinstance(images, Tensor) and samples
        labels = stack_labels(samples) if is_usual else None
        if labels is None or not (self.model.training and torch.is_grad_enabled()):
            return self.ordinary(images, samples)
        if not self.example:
            kind = images.device.type
            self.autocast = kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)
            self.samples, self.example = samples, (images.clone(), labels.clone())
        inputs = images, labels
        if not self.names or [*map(description, inputs)] != [*map(description, self.example)]:
            return self.ordinary(images, samples)
        return dict(zip(self.names, self(*inputs), strict=True))

    def forward(self, images: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        """Images (B,3,H,W) and labels (B,...) to the values of the losses."""
        samples = [with_label(*pair) for pair in zip(self.samples, labels, strict=True)]
        with torch.autocast(*self.autocast, cache_enabled=False):  # a graph casts the weights again
            losses = self.ordinary(images, samples)
        self.returned = tuple(losses)
        return tuple(losses.values())

    def capture(self) -> str:
        """Make a graph of :meth:`forward`, or return why there is none.

        Statistics of batch norms and random generators are as before afterwards.
        """
        buffers = [(x, x.clone()) for x in self.buffers()]
        devices = [x.device for x in self.example[:1] if x.is_cuda]
        with torch.random.fork_rng(devices, device_type='cuda'):
            problem = self.try_both_passes()
            if not problem:
                torch.cuda.make_graphed_callables(self, self.example, allow_unused_input=True)
                self.names, self.state = self.returned, self.current_state()
        for x, value in buffers:
            x.copy_(value)
        return problem

    def about(self) -> str:
        shape, names = tuple(self.example[0].shape), ', '.join(self.names)
        return (
            f'CUDA graph of {names} captured for images {shape} in {get_world_size()} process(es).'
        )

    def current_state(self) -> list[tuple]:
        """What hooks may change after the capture: parts, their modes, frozen weights."""
        parts = [(id(x), x.training) for x in self.modules()]
        return parts + [(id(x), x.requires_grad) for x in self.parameters()]

    def try_both_passes(self) -> str:
        """Why a capture would fail; empty if it would not."""
        mode = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode('error')
        try:
            losses = self(*self.example)
            if not all(isinstance(x, Tensor) for x in losses):
                return 'not all losses are tensors'
            total = sum(x.sum() for x in losses if x.requires_grad)
            weights = [x for x in self.parameters() if x.requires_grad]
            torch.autograd.grad(total, weights, allow_unused=True)
        except RuntimeError as error:
            return f'the losses cannot run without waiting for the GPU ({error})'
        finally:
            torch.cuda.set_sync_debug_mode(mode)
        return ''


def stack_labels(samples: Sequence[BaseDataElement]) -> Tensor | None:
    """The labels of samples as one tensor (B,...); None if there are others, too."""
    names = {*samples[0].keys()}
    if not (names == {'gt_sem_seg'} or 'gt_label' in names <= {'gt_label', 'gt_score'}):
        return None
    labels = [sample.get(label_name(sample)) for sample in samples]
    labels = [x.data if isinstance(x, PixelData) else x for x in labels]
    return torch.stack(labels) if len({x.shape for x in labels}) == 1 else None


def with_label(sample: BaseDataElement, label: Tensor) -> BaseDataElement:
    """A sample like another one, with a label (1,H,W) of pixels, (1) of an image, or scores (K)."""
    new, name = type(sample)(metainfo=sample.metainfo), label_name(sample)
    new.set_field(PixelData(data=label) if name == 'gt_sem_seg' else label, name)
    return new


def label_name(sample: BaseDataElement) -> str:
    """Losses take scores, of Mixup and CutMix, where a sample has labels, too."""
    return next(name for name in ('gt_sem_seg', 'gt_score', 'gt_label') if name in sample)


def description(x: Tensor) -> tuple:
    return x.shape, x.dtype, x.device
