"""Every published model: its weights fit our backbone, and its size is that of the paper."""

import re
from pathlib import Path

import get_flops as flops
import pytest
import torch
from helpers import official_layouts, official_shapes

from mmbixt.backbones.published import PUBLISHED
from mmbixt.backbones.recognise import build, fit

TABLE = Path(__file__).parents[2] / 'docs/configs.md'
BY_NAME = {model.name: model for model in PUBLISHED}

# layout of an official file: the model whose weights it has
FILES = {layout: layout.split('__')[0] for layout in official_layouts()}
FILES = {layout: name for layout, name in FILES.items() if name in BY_NAME}
FILES.update(
    dict.fromkeys(('swin_tiny_microsoft', 'swin_tiny_timm', 'swin_tiny_mmseg'), 'swin_tiny')
)


def check(layout):
    """How a layout fits its model, which it does."""
    shapes = official_shapes(layout)
    state = {key: torch.empty(shape, device='meta') for key, shape in shapes.items()}
    found = fit(state, BY_NAME[FILES[layout]])
    assert not found.differences, found.differences.lines()
    return found


# new layers of dense prediction, which a classification file need not have
NEW = {
    'BiXT': (),
    'XCiT': (),
    'BiFormer': ('extra_norms.',),
    'BiSASwin': ('norm0.', 'norm1.', 'norm2.', 'norm3.'),
}


@pytest.mark.parametrize('layout', FILES)
def test_all_weights_are_loaded_except_those_of_the_classifier(layout):
    family, found = BY_NAME[FILES[layout]].family, check(layout)
    converted = found.converted
    missing = [k for k in found.differences.optional if not k.endswith('relative_position_index')]
    is_dense = layout.endswith(('__dense', '_mmseg'))
    new = () if is_dense else NEW[family]
    assert all(key.startswith(new) for key in missing), missing
    kept = set(converted.origins.values())
    assert kept.isdisjoint(converted.dropped)
    assert kept | set(converted.dropped) == set(official_shapes(layout))
    depth = build(FILES[layout]).arch.get('depth')
    classifiers = {key for key in official_shapes(layout) if is_classifiers(key, family, depth)}
    assert set(converted.dropped) == classifiers


def is_classifiers(key, family, depth):
    """Whether only the classifier of an official model needs a weight; a list made by hand."""
    if family == 'BiXT':
        in_last = key.startswith(f'blocks.{depth}.')
        updates = r'self_attention_latents|(norm2|ls1|mlp|ls2|proj)_lat'
        latents = key.startswith(f'blocks.{depth - 1}.') and re.search(updates, key)
        return in_last or latents or key.startswith(('fc_norm.', 'head.', 'fourier_pos_encode.pos'))
    if family == 'XCiT':
        return key.startswith(('cls_token', 'cls_attn_blocks.', 'norm.', 'head.', 'fpn'))
    return key.startswith(('norm.', 'head.')) or key.endswith('.attn_mask')


# multiply-adds at 224 x 224 of the official classifiers, counted in their own code (in G)
COUNTED = {
    'bixt_ti_l64_p16': 1.672,
    'bixt_ed256LS_l64_p16s8': 8.115,
    'bixt_ti_cnv_l64_d13_p4': 18.270,
    'xcit_nano_12_p16': 0.557,
    'xcit_tiny_12_p8': 4.829,
    'biformer_tiny': 2.216,
    'biformer_stl': 4.574,
    'biformer_stl_nchw': 4.574,
    'swin_tiny': 4.491,
}


@pytest.mark.parametrize('name', COUNTED)
def test_multiply_adds_are_those_of_the_authors_code(name):
    total = flops.measure_classifier(BY_NAME[name])[1] / 1e9
    assert total == pytest.approx(COUNTED[name], rel=1e-3)


# Relative differences of a paper's numbers from ours. The papers' counter counts norms, ours does
# not (up to 0.8 %); XCiT's paper truncates digits; BiXT's paper counts tiny models without the
# biases of queries and keys that the released models have.
PAPER_DIFFERS = 0.012


def test_the_table_has_the_numbers_of_the_papers():
    """That its table is the output of the tool is tested in test_get_flops.py."""
    table = TABLE.read_text().partition(flops.START)[2].partition(flops.END)[0]
    rows = {cells[1].strip(' `'): cells for cells in map(cells_of, table.splitlines())}
    for model in PUBLISHED:
        *_, ours_params, params, ours_gmacs, gmacs, _ = rows[model.name]
        assert (params, gmacs) == (model.params or '–', model.gmacs or '–')
        for ours, paper in ((ours_params, model.params), (ours_gmacs, model.gmacs)):
            assert not paper or is_the_papers(float(ours), paper), (model.name, ours, paper)


def cells_of(line):
    return [cell.strip() for cell in line.split('|')] if '|' in line else ['', line]


def is_the_papers(ours, paper):
    digits = len(paper.partition('.')[2])
    cut = int(ours * 10**digits) / 10**digits
    is_close = abs(ours - float(paper)) <= PAPER_DIFFERS * float(paper)
    return float(paper) in (cut, round(ours, digits)) or is_close
