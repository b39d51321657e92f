"""A classifier of mmpretrain, from pixels to scores."""

from collections.abc import Sequence

import numpy as np
import torch
from mmengine.config import Config
from torch import Tensor, nn

from mmbixt.config import test_set, type_name
from mmbixt.export.files import normalise

LIMIT, LIMIT_OF_ROUTING = 1e-4, 1e-2  # of the largest score


class ExportedClassifier(nn.Module):
    """A classifier with its preprocessing.

    Args:
        model: of mmpretrain, in evaluation mode.
        config: of the model.
    """

    outputs, free = ['scores'], {0: 'batch'}
    batch = 2  # of the example: exporters take 1 for a constant

    def __init__(self, model: nn.Module, config: Config) -> None:
        super().__init__()
        self.model, self.prepare = model, dict(config.get('data_preprocessor', {}))
        # data sets without files, such as CIFAR, give the preprocessor images in RGB, not BGR
        self.is_in_rgb = 'LoadImageFromFile' not in map(type_name, test_set(config).pipeline)
        self.prepare['to_rgb'] = self.prepare.get('to_rgb', False) != self.is_in_rgb

    def forward(self, images: Tensor) -> Tensor:
        """Images (B,3,H,W) to scores (B,K), whose sum is 1."""
        features = self.model.extract_feat(normalise(images, self.model, self.prepare))
        return self.model.head(features).softmax(-1)

    def compare(
        self, outputs: Sequence[np.ndarray], model: nn.Module, images: Tensor, has_routes: bool
    ) -> tuple[str, bool]:
        """Compare scores with those that mmpretrain computes: a text, and if they agree."""
        images = images.flip(1) if self.is_in_rgb else images
        inputs = model.data_preprocessor(dict(inputs=images))['inputs']
        expected = torch.stack([sample.pred_score for sample in model.predict(inputs)]).numpy()
        difference = np.abs(outputs[0] - expected).max() / expected.max()
        limit = LIMIT_OF_ROUTING if has_routes else LIMIT
        return f'largest difference {difference:.1e} of the largest score', difference <= limit
