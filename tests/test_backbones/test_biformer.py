import pytest
import torch
from helpers import formulation, golden, image, official_state

from mmbixt.backbones import BiFormer
from mmbixt.checkpoints.errors import CheckpointMismatchError


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


def test_full_attention_of_the_channels_first_code():
    """Other attentions are those of the goldens, or of the other code."""
    with torch.device('meta'):
        full = BiFormer('stl-nchw').stages[3][0].attn
        without = BiFormer('stl', topks=(1, 4, 16, -1)).stages[3][0].attn
    assert (full.num_heads, full.lepe_of) == (8, 'values')
    assert without.lepe is None


@pytest.mark.parametrize(
    ('arch', 'options', 'parameters'),
    [
        ('stl', dict(patch_embed='overlapping'), 30_347_560),
        ('small', dict(position_conv=False), 25_461_992),
    ],
)
def test_steps_from_the_layout_of_swin(arch, options, parameters):
    """Table 6 of the paper; files of another step are refused."""
    with torch.device('meta'):
        step, published = BiFormer(arch, output_norms=False, **options), BiFormer(arch)
        classifier = 1000 * step.out_channels[-1] + 1000 + 2 * step.out_channels[-1]
    assert sum(p.numel() for p in step.parameters()) + classifier == parameters
    with pytest.raises(CheckpointMismatchError):
        step.load_state_dict(published.state_dict())
