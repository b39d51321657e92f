"""Every published model: its weights fit our backbone, and its size is that of the paper."""

import re
from pathlib import Path

import get_flops as flops
import pytest
import torch
from helpers import official_layouts, official_shapes

from mmbixt import backbones
from mmbixt.backbones.base import DenseBackbone
from mmbixt.backbones.recognise import fit, identify
from mmbixt.checkpoints.sources import PUBLISHED

TABLE = Path(__file__).parents[2] / 'docs/configs.md'
BY_NAME = {model.name: model for model in PUBLISHED}

# layout of an official file: the model whose weights it has
FILES = {layout: layout.split('__')[0] for layout in official_layouts()}
FILES = {layout: name for layout, name in FILES.items() if name in BY_NAME}
FILES.update(
    dict.fromkeys(('swin_tiny_microsoft', 'swin_tiny_timm', 'swin_tiny_mmseg'), 'swin_tiny')
)


# new layers of dense prediction, which a classification file need not have
NEW = {
    'BiFormer': ('extra_norms.',),
    'BiSASwin': ('norm0.', 'norm1.', 'norm2.', 'norm3.'),
}


@pytest.mark.parametrize('layout', FILES)
def test_all_weights_are_loaded_and_the_file_is_recognised(layout):
    shapes = official_shapes(layout)
    state = {key: torch.empty(shape, device='meta') for key, shape in shapes.items()}
    model = BY_NAME[FILES[layout]]
    problems, new = fit(state, model, getattr(backbones, model.family))[1]
    assert not problems
    is_dense = layout.endswith(('__dense', '_mmseg'))
    assert all(key.startswith(NEW.get(model.family, ())) for key in new)
    assert not (is_dense and new)
    assert re.search(rf'\b{model.name} \(', identify(state, DenseBackbone.families))


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


# Relative differences of a paper's numbers from ours, beside its last digit. The papers' counter
# counts norms, ours does not (up to 0.8 %); BiXT's paper counts tiny models without the biases of
# queries and keys that the released models have.
PAPER_DIFFERS = 0.012


def test_the_table_has_the_numbers_of_the_papers():
    """That its table is the output of the tool is tested in test_get_flops.py."""
    table = TABLE.read_text().partition(flops.START)[2].partition(flops.END)[0]
    rows = {cells[1].strip(' `'): cells for cells in map(cells_of, table.splitlines())}
    for model in (model for model in PUBLISHED if model.gmacs):  # as in the table
        *_, params, gmacs, _ = rows[model.name]
        for cell, paper in ((params, model.params), (gmacs, model.gmacs)):
            ours, _, printed = cell.strip(')').partition(' (')
            assert printed == (paper or '')
            assert not paper or is_the_papers(float(ours), paper), (model.name, ours, paper)


def cells_of(line):
    return [cell.strip() for cell in line.split('|')] if '|' in line else ['', line]


def is_the_papers(ours, paper):
    last_digit = 10.0 ** -len(paper.partition('.')[2])
    return abs(ours - float(paper)) <= PAPER_DIFFERS * float(paper) + last_digit
