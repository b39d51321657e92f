import pytest
import torch
from helpers import formulation, golden, image, official_state

from mmbixt.backbones import BiFormer


@torch.no_grad()
@pytest.mark.parametrize('padding', ['legacy', 'masked'])
@pytest.mark.parametrize(('num_regions', 'side'), [(7, 224), (8, 128)])
def test_golden(num_regions, side, padding):
    """The outputs of the stages, and of the norms after them; logits are in test_classifiers."""
    reference = golden(f'biformer_tiny__dense_nwin{num_regions}__{side}x{side}')
    backbone = BiFormer('tiny', num_regions, padding=padding).eval()
    backbone.load_state_dict(official_state('biformer_tiny__dense'))
    for path in ('fast', 'definition'):
        with formulation(path):
            state = backbone.embed(image(1, side, side))
            for layer in backbone.layer_list():
                state = backbone.step(layer, state)
                if (i := layer.map_index) is not None:
                    for name, norm in (('raw', None), ('out', layer.norm)):
                        found = backbone.feature_map(state, norm).numpy()
                        assert reference.check(f'{name}{i}', found) < 2e-5


def test_last_stage_without_lepe():
    with torch.device('meta'):
        assert BiFormer('stl', topks=(1, 4, 16, -1)).stages[3][0].attn.lepe is None
