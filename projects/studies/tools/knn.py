"""Classify the test images of a classifier's config by the nearest training images.

As in DINO's evaluation: features are what the head gets, of length one; the k training images with
the largest products vote for their classes with exp(product / temperature). Training images are
loaded as test images are. No head is needed, nor used. Needs 4 bytes for each training image and
channel of the features (2 GB for ImageNet-1k and XCiT-S12).
"""

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from mmengine.config import Config
from mmengine.runner import CheckpointLoader, Runner
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.utils.data import DataLoader

from mmbixt.backbones.weights import load_whole_state
from mmbixt.checkpoints.state_dict import unwrap
from mmbixt.cli import add_common_arguments, load_config, run


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog='Example: python projects/studies/tools/knn.py xcit_s12_p16_dino_linear_in1k '
        'xcit://small12-p16-dino',
    )
    add_common_arguments(parser)
    add = parser.add_argument
    add('checkpoint', help='checkpoint file, or the name of published weights')
    add('--neighbours', type=int, nargs='+', default=[10, 20, 100, 200], metavar='K')
    add('--temperature', type=float, default=0.07)
    return parser.parse_args()


def load_without_head(model: nn.Module, checkpoint: Mapping[str, Any]) -> None:
    """Load all weights but the head's, or raise an error: mmengine only logs missing ones."""
    head = {key: x for key, x in model.state_dict().items() if key.startswith('head.')}
    others = {k: x for k, x in unwrap(checkpoint).items() if not k.startswith('head.')}
    load_whole_state(model, {**others, **head})


def build(cfg: Config, checkpoint: str) -> tuple[nn.Module, DataLoader, DataLoader]:
    """The model with its weights, and loaders of the training and of the test images."""
    loader = cfg.test_dataloader
    training = dict(cfg.train_dataloader.dataset, pipeline=loader.dataset.pipeline)
    runner = Runner.from_cfg(cfg)
    load_without_head(runner.model, CheckpointLoader.load_checkpoint(checkpoint, 'cpu'))
    loaders = [Runner.build_dataloader(x) for x in (dict(loader, dataset=training), loader)]
    return runner.model.eval(), *loaders


@torch.no_grad()
def features(model: nn.Module, loader: DataLoader) -> Iterator[tuple[Tensor, Tensor]]:
    """Features (B,C) of length one and labels (B) of each batch."""
    for batch in loader:
        data = model.data_preprocessor(batch)
        vectors = normalize(model.extract_feat(data['inputs'])[-1].float(), dim=1)
        yield vectors, torch.cat([sample.gt_label for sample in data['data_samples']])


def vote(products: Tensor, labels: Tensor, classes: int, temperature: float) -> Tensor:
    """Products (B,k) with the nearest images and their labels (B,k) to scores (B,classes)."""
    scores = products.new_zeros(len(products), classes)
    return scores.scatter_add(1, labels, (products / temperature).exp())


def main() -> None:
    args = parse_args()
    cfg = load_config(args)
    model, training, test = build(cfg, args.checkpoint)
    known, labels = (torch.cat(x) for x in zip(*features(model, training), strict=True))
    scores, answers = {k: [] for k in args.neighbours}, []
    for vectors, target in features(model, test):
        products, nearest = (vectors @ known.T).topk(min(max(scores), len(known)))
        for k, parts in scores.items():
            found = products[:, :k], labels[nearest[:, :k]]
            parts.append(vote(*found, model.head.num_classes, args.temperature))
        answers.append(target)
    for k, parts in scores.items():
        hits = torch.cat(parts).topk(5).indices == torch.cat(answers)[:, None]
        top1, top5 = (100 * hits[:, :n].any(1).float().mean() for n in (1, 5))
        print(f'{k:4} neighbours: top-1 {top1:.2f}, top-5 {top5:.2f}')


if __name__ == '__main__':
    run(main)
