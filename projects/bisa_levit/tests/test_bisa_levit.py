"""BiSA-LeViT: its attention, the LeViT around it, the counts in its README, dense prediction."""

import re

import pytest
import torch
from get_flops import count_parameters
from helpers import assert_close, image
from mmengine.analysis import FlopAnalyzer
from mmengine.registry import MODELS, init_default_scope
from mmpretrain.models.backbones import LeViT
from mmpretrain.models.backbones.levit import Residual
from torch.nn.functional import gelu, layer_norm

from mmbixt.attention import BidirectionalSelfAttention, by_definition
from mmbixt.config import PROJECTS, read_config
from projects.bisa_levit import BiSALeViT  # noqa: F401 (registers it)

SIDE = 32  # four tokens in the first stage


def build(**options):
    """A backbone with batch statistics and biases that are not those of the start."""
    torch.manual_seed(0)
    init_default_scope('mmpretrain')
    model = MODELS.build(dict(type='mmbixt.BiSALeViT', img_size=SIDE) | options)
    for name, value in model.named_parameters():
        if 'bn.weight' in name or 'biases' in name or name.endswith('lam_logit'):
            torch.nn.init.normal_(value, mean=1.0, std=0.2)
    model.train()
    model(image(8, model.img_size, model.img_size))
    model.eval()  # mmpretrain's returns None
    return model


def by_equations(attention, x, lam, norm):
    """The attention of tokens (B,N,C) with four heads of width 32, and neither norms nor biases of
    positions from LeViT."""
    q, k, v, q_hat, v_hat = (
        y.unflatten(-1, (4, 32)).transpose(1, 2)
        for y in (
            *attention.qkv(x).chunk(3, dim=-1),
            *(gelu(layer(x)) for layer in (attention.isa.q, attention.isa.v)),
        )
    )
    S, W = (
        q @ k.transpose(-2, -1) / 32**0.5,
        torch.einsum('...a,abc->...bc', v_hat, attention.isa.G),
    )
    inverse = (q_hat[..., None, :] @ W)[..., 0, :] + S.softmax(-2) @ v_hat @ attention.isa.B
    plain, inverse = (y.transpose(1, 2).flatten(2) for y in (S.softmax(-1) @ v, inverse))
    if norm:
        plain, inverse = (layer_norm(y, (128,)) for y in (plain, inverse))
    return attention.proj(lam * plain + (1 - lam) * inverse)


@pytest.mark.parametrize('lam', [0, 0.3, 'learned'])
@pytest.mark.parametrize('branch_norm', [None, 'layer'])
def test_attention_is_that_of_its_equations(lam, branch_norm):
    attention = build(lam=lam, branch_norm=branch_norm).stages[0][2].block.double()
    x = torch.randn(2, 4, 128, dtype=torch.float64)
    share = attention.lam if lam == 'learned' else lam
    assert_close(attention(x), by_equations(attention, x, share, branch_norm), 1e-11)


def test_only_the_first_layers_differ_from_mmpretrains():
    plain, x = LeViT('128s', SIDE), image(2, SIDE, SIDE)
    model = build(bisa_layers=0)
    plain.load_state_dict(model.state_dict())
    plain.eval()
    assert torch.equal(plain(x)[0], model(x)[0])
    for layers, expected in ((1, {'0'}), (2, {'0', '2'})):
        new = build(bisa_layers=layers).state_dict().keys() - plain.state_dict().keys()
        assert {name.split('.')[2] for name in new} == expected
        assert all(name.startswith('stages.0.') for name in new)
    with pytest.raises(ValueError, match=r'bisa_layers=3 is not one of 0, 1, 2\.'):
        build(bisa_layers=3)


def test_training_starts_as_in_levits_code():
    """Each residual of LeViT is the identity, and the classifier has weights of 0.02."""
    init_default_scope('mmpretrain')
    model, same = MODELS.build(read_config('bisa_levit_128s_in1k').model), []
    model.init_weights()
    for block in model.backbone.modules():
        if isinstance(block, Residual) and not isinstance(block.block, BidirectionalSelfAttention):
            block.register_forward_hook(lambda _, x, out: same.append(torch.equal(x[0], out)))
    model.backbone(image(2, 224, 224))
    assert same == 18 * [True]
    assert model.head.head.linear.weight.std().item() == pytest.approx(0.02, rel=0.01)


@torch.no_grad()
def test_deployment_and_mixed_precision():
    model, x = build(lam='learned'), image(2, SIDE, SIDE)
    expected = model(x)[0]
    with torch.autocast('cpu', torch.bfloat16):
        assert_close(model(x)[0].float(), expected, 0.05)
    model.switch_to_deploy()
    assert_close(model(x)[0], expected)
    assert not any('bn' in name for name, _ in model.stages.named_parameters())


def test_counts_are_those_of_the_readme_and_of_the_paper():
    """Parameters with LeViT's second classifier, operations with one, as fvcore counts them."""
    text = (PROJECTS / 'bisa_levit/README.md').read_text()
    cells = r'^\| .*? \| .*? \| ([\d.]+) M \| (\d+) M \| ([\d.]+) M(?:<sup>1</sup>)? \|$'
    rows, found = re.findall(cells, text, re.M), []
    init_default_scope('mmpretrain')
    for layers in range(3):
        config = dict(
            type='ImageClassifier',
            backbone=dict(type='mmbixt.BiSALeViT', bisa_layers=layers, lam='learned'),
            neck=dict(type='GlobalAveragePooling'),
            head=dict(type='LeViTClsHead', num_classes=1000, in_channels=384, distillation=False),
        )
        model = MODELS.build(config).eval()
        with by_definition(), torch.no_grad():
            flops = FlopAnalyzer(model, torch.zeros(1, 3, 224, 224)).total()
        parameters = (count_parameters(model) + 385_768) / 1e6
        found.append((f'{parameters:.2f}', flops / 1e6))
    values = 196 * 196 * 128 / 1e6  # times the attention: what inverse attention alone leaves out
    found += [(parameters, flops - n * values) for n, (parameters, flops) in enumerate(found) if n]
    assert rows == [(p, str(int(flops)), f'{flops:.2f}') for p, flops in found]


def test_images_of_another_size_are_refused():
    """Also those with as many tokens, of which the biases are those of other positions."""
    model = build(img_size=64)
    with pytest.raises(ValueError, match=r'images of 64 x 64 pixels, but got 32 x 128\.'):
        model(image(1, 32, 128))


def test_feature_maps_for_dense_prediction():
    """Every parameter is used."""
    model = build(img_size=128, out_indices=(0, 1, 2))
    model.train()
    maps = model(image(2, 128, 128))
    assert [x.shape[1:] for x in maps] == [(128, 8, 8), (256, 4, 4), (384, 2, 2)]
    sum(x.sum() for x in maps).backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []
