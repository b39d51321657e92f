import pytest
import torch
from helpers import assert_close, formulation, golden, image, official_state
from mmpretrain.models.backbones import SwinTransformer as SwinClassifier
from mmseg.models.backbones import SwinTransformer

from mmbixt.backbones import BiSASwin

SMALL = dict(embed_dims=16, depths=(2, 2, 2, 2), num_heads=(1, 2, 4, 8))


def randomized(backbone):
    """With weights so large that every part changes the output."""
    for p in backbone.parameters():
        torch.nn.init.normal_(p, mean=float(p.ndim == 1), std=p.shape[-1] ** -0.5)
    return backbone


@pytest.fixture(scope='module')
def swin_of_mmseg():
    torch.manual_seed(0)
    sizes = dict(window_size=5, mlp_ratio=3)
    theirs = SwinTransformer(**SMALL, **sizes)
    theirs.eval()  # returns nothing
    ours = BiSASwin({**SMALL, **sizes}, bisa_stages=()).eval()
    theirs.load_state_dict(randomized(ours).state_dict(), strict=True)
    return ours, theirs


@pytest.mark.parametrize('path', ['fast', 'definition'])
@pytest.mark.parametrize('size', [(1, 1), (3, 50), (20, 20), (41, 43), (107, 161)])
def test_equals_swin_of_mmseg(swin_of_mmseg, size, path):
    ours, theirs = swin_of_mmseg
    x = image(2, *size)
    with torch.no_grad(), formulation(path):
        assert_close(ours(x), theirs(x))


@pytest.mark.parametrize('size', [(160, 160), (160, 320), (330, 170)])
def test_without_shift_of_single_windows_equals_swin_of_mmpretrain(size):
    """At the first two sizes the windows of the last stage are as large as its shorter side."""
    arch = {**SMALL, 'window_size': 5}
    theirs = SwinClassifier(SMALL, window_size=5)
    theirs.eval()  # returns nothing
    ours = randomized(BiSASwin(arch, (), shift_single_window=False, out_indices=(3,))).eval()
    theirs.load_state_dict(ours.state_dict(), strict=True)
    with torch.no_grad():
        assert_close(*ours(image(1, *size)), *theirs(image(1, *size)))


def test_gradients_equal_those_of_mmseg(swin_of_mmseg):
    for backbone in swin_of_mmseg:
        backbone.zero_grad()
        sum(feature_map.sin().sum() for feature_map in backbone(image(1, 71, 93))).backward()
    ours, theirs = (dict(backbone.named_parameters()) for backbone in swin_of_mmseg)
    assert list(ours) == list(theirs)
    for name, p in ours.items():
        assert_close(p.grad, theirs[name].grad, 1e-4)


@torch.no_grad()
@pytest.mark.parametrize('path', ['fast', 'definition'])
def test_golden_of_the_authors_stages(path, tmp_path):
    file = tmp_path / 'file.pth'
    torch.save({'model': official_state('bisa_swin_tiny_additive')}, file)
    backbone = BiSASwin(
        **dict(projection='additive', lam='learned', shift_single_window=False),
        init_cfg=dict(type='Pretrained', checkpoint=str(file)),
    ).eval()
    backbone.init_weights()
    reference = golden('bisa_swin_tiny_additive__logits__224x224')
    with formulation(path):
        state = backbone.embed(image(1, 224, 224))
        for layer in backbone.layer_list():
            state = backbone.step(layer, state)
            if layer.map_index is not None:
                found = backbone.feature_map(state).numpy()
                assert reference.check(f'stage{layer.map_index}', found) < 2e-5


def test_additive_starts_as_in_the_authors_code():
    attention = BiSASwin(projection='additive', lam='learned').stages[0].blocks[1].attn.w_msa
    assert attention.lam == 0.5
    for name, weight in attention.isa.named_parameters():
        expected = 0 if 'bias' in name else 0.02
        assert weight.std().item() == pytest.approx(expected, rel=0.1), name


@pytest.mark.parametrize(
    ('stages', 'expected'), [((1, 3), {1, 3}), (3, {3}), (-1, {3}), ([-1], {3}), ((), set())]
)
def test_inverse_attention_is_in_every_block_of_bisa_stages(stages, expected):
    backbone = BiSASwin(SMALL, bisa_stages=stages, lam='learned')
    found = {name.rsplit('.', 1)[0] for name, _ in backbone.named_parameters() if '.lam' in name}
    assert found == {f'stages.{i}.blocks.{j}.attn.w_msa' for i in expected for j in (0, 1)}
