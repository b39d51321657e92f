import pytest
import torch
from helpers import assert_close, formulation, golden, image, official_state, others_in_zoo

from mmbixt.backbones import BiXT, BiXTAblation

SMALL = dict(embed_dims=32, num_heads=2, depth=3)

GOLDENS = {  # layout: options, batch
    'bixt_ti_l64_d13_p16': (dict(), 2),
    'bixt_ti_l64_d13_p16s8': (dict(patch_stride=8), 1),
    'bixt_ti_cnv_l64_d13_p16': (dict(patch_embed='conv'), 2),
}


@torch.no_grad()
@pytest.mark.parametrize('layout', GOLDENS)
def test_golden(layout):
    options, batch = GOLDENS[layout]
    backbone = BiXT(out_indices=(2, 5, 8, 11), out_latents=True, **options).eval()
    backbone.load_state_dict(official_state(layout))
    reference = golden(f'{layout}__dense__64x64')
    x = image(batch, 64, 64)
    for path in ('fast', 'definition'):
        with formulation(path):
            tokens, grid = backbone.tokenize(x)
            outputs = backbone(x)
        embed = tokens.transpose(1, 2).unflatten(2, grid)
        keys = ('embed', 'tok3', 'tok6', 'tok9', 'tok12', 'lat3', 'lat6', 'lat9', 'lat12')
        for key, value in zip(keys, (embed, *outputs), strict=True):
            assert reference.check(key, value.numpy()) < 2e-5


@torch.no_grad()
def test_golden_of_fewer_layers_with_and_without_latents():
    """The last built layer is an earlier one, with or without its update of the latents."""
    state = official_state('bixt_ti_l64_d13_p16')
    reference = golden('bixt_ti_l64_d13_p16__dense__64x64')
    for layer, with_latents in ((3, True), (6, True), (9, True), (3, False)):
        backbone = BiXT(out_indices=(layer - 1,), out_latents=with_latents).eval()
        backbone.load_state_dict(state)
        feature_map, *latents = backbone(image(2, 64, 64))
        assert reference.check(f'tok{layer}', feature_map.numpy()) < 2e-5
        if with_latents:
            assert reference.check(f'lat{layer}', latents[0].numpy()) < 2e-5


@torch.no_grad()
def test_latents_behind_the_feature_maps():
    """Those of each out index, for LatentMaskHead; the feature maps are the same."""
    options, x = dict(arch=SMALL, num_latents=5), image(2, 64, 80)
    backbone = BiXT(**options, out_indices=(0, 2), out_latents=True).eval()
    outputs = backbone(x)
    assert len(outputs) == 4
    for i, layer in enumerate(backbone.out_indices):
        single = BiXT(**options, out_indices=(layer,), out_latents=True).eval()
        single.load_state_dict(backbone.state_dict())
        feature_map, latents = single(x)
        assert torch.equal(outputs[i], feature_map)
        assert torch.equal(outputs[2 + i], latents)


def tiny(**options):
    return dict(depth=11, **options)


def small(num_latents):
    return dict(arch='small', depth=11, num_latents=num_latents)


def iterative(self_attentions, depth, share_first=False):
    options = dict(self_attentions=self_attentions, share_first=share_first)
    return dict(attention='iterative', depth=depth, **options)


PRINTED = [  # classifiers; parameters (M) and operations at 224 x 224 (G) that the paper prints
    (tiny(patch_size=32), '15.56', '1.77'),
    (tiny(patch_size=32, patch_stride=8), '15.56', '5.05'),
    (tiny(patch_size=8, patch_stride=8), '15.01', '4.62'),
    (tiny(patch_size=8, patch_stride=4), '15.01', '16.46'),
    (tiny(patch_size=4, patch_stride=4), '14.98', '16.38'),
    (small(32), '59.57', '5.02'),
    (small(64), '59.59', '6.43'),
    (small(128), '59.61', '9.32'),
    (tiny(token_refiner='lpi'), '15', '1.7'),
    (dict(depth=10, attention='sequential'), '14.60', '1.66'),
    (dict(depth=11, attention='sequential', qkv_bias=False), '15.92', '1.81'),
    (dict(depth=11, qkv_bias=False), '15.11', '1.68'),
    (iterative(5, 8, share_first=True), '18.61', '1.58'),
    (iterative(5, 8), '19.05', '1.58'),
    (iterative(6, 7, share_first=True), '19.50', '1.59'),
    (iterative(6, 7), '19.94', '1.59'),
    (iterative(6, 8, share_first=True), '22.16', '1.82'),
    (iterative(6, 8), '22.61', '1.82'),
    (iterative(4, 12, share_first=True), '22.16', '1.99'),
    (iterative(4, 12), '22.61', '1.99'),
    (iterative(1, 22), '11.04', '1.64'),
    (iterative(1, 24), '11.93', '1.79'),
]


def operations_of_norms(model, call):
    """Five for each value: the paper's counter includes them."""
    found = []
    for norm in (m for m in model.modules() if isinstance(m, torch.nn.LayerNorm)):
        norm.register_forward_hook(lambda *args: found.append(5 * args[-1].numel()))
    call()
    return sum(found)


@pytest.mark.parametrize('row', others_in_zoo(PRINTED, PRINTED[::7]))
def test_sizes_of_the_papers_tables(row):
    pytest.importorskip('mmpretrain')
    from classifiers import build_meta
    from get_flops import count_macs, count_parameters

    from mmbixt.classification import classifier_config

    options, parameters, operations = row
    kind = 'BiXTAblation' if {'attention', 'qkv_bias'} & options.keys() else 'BiXT'
    model = build_meta(classifier_config(dict(type=f'mmbixt.{kind}', **options)))

    def call():
        return model(torch.empty(1, 3, 224, 224, device='meta'), mode='tensor')

    def printed(value, like):
        return f'{value:.{len(like.partition(".")[2])}f}'

    assert printed(count_parameters(model) / 1e6, parameters) == parameters
    total = count_macs(call) + operations_of_norms(model, call)
    assert printed(total / 1e9, operations) == operations


@pytest.mark.parametrize(('patch_size', 'patch_stride'), [(32, 16), (32, 8), (8, 4), (4, 4)])
@torch.no_grad()
def test_any_patch_size_gives_the_grid_of_the_stride(patch_size, patch_stride):
    backbone = BiXT(SMALL, patch_size=patch_size, patch_stride=patch_stride).eval()
    for height, width in ((64, 48), (33, 70)):
        grid = backbone(image(1, height, width))[-1].shape[2:]
        assert grid == (-(-height // patch_stride), -(-width // patch_stride))
    with pytest.raises(ValueError, match=f'too small: BiXT needs {patch_size} x {patch_size}'):
        backbone(image(1, patch_size - 1, 64))
    with pytest.raises(ValueError, match='patch_size=8 is not one of 32, 16'):
        BiXT(SMALL, patch_size=8, patch_stride=16)


@pytest.mark.parametrize('share_first', [True, False])
def test_iterative_updates_only_latents_and_shares_a_cross_attention(share_first):
    options = dict(attention='iterative', self_attentions=2, share_first=share_first)
    with pytest.raises(ValueError, match='needs latent_layer=True'):
        BiXTAblation(SMALL, **options)
    options |= dict(num_latents=5, latent_layer=True)
    torch.manual_seed(0)
    backbone = BiXTAblation(SMALL, **options)
    crosses = {layer.cross_attention_latents_token for layer in backbone.blocks}
    assert len(crosses) == (1 if share_first else 2)
    x = image(2, 48, 32)
    maps, latents = backbone(x)
    assert latents.shape == (2, 5, 32)
    tokens, grid = backbone.tokenize(x)
    assert_close(maps[-1], tokens.transpose(1, 2).unflatten(2, grid))
    latents.sin().sum().backward()
    assert not [name for name, p in backbone.named_parameters() if p.grad is None]
    again = BiXTAblation(SMALL, with_cp=True, **options)  # of other weights
    again.load_state_dict(backbone.state_dict())
    out = again(x)[1]
    assert torch.equal(out, latents)
    out.sin().sum().backward()
    assert_close([p.grad for p in again.parameters()], [p.grad for p in backbone.parameters()])
    assert backbone.get_layer_depth('blocks.2.self_attention_latents.1.norm1.weight') == (3, 5)
    frozen = BiXTAblation(SMALL, frozen_stages=1, drop_path_rate=0.5, **options).train()
    assert not any(p.requires_grad for p in frozen.blocks[0].parameters())
    rates = [layer.self_attention_latents[0].drop_path.drop_prob for layer in frozen.blocks]
    assert rates == [0, 0.25, 0.5]
    sizes = ({0: torch.export.Dim.AUTO, 2: torch.export.Dim.AUTO},)
    program = torch.export.export(backbone.eval(), (x,), dynamic_shapes=sizes).module()
    assert_close(program(image(3, 64, 32))[1], backbone(image(3, 64, 32))[1])
