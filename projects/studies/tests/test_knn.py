"""Classification by the nearest training images."""

import math

import pytest
import torch
from helpers import official_state
from running import NO_WORKERS, write_few_scenes

from mmbixt.checkpoints.errors import CheckpointMismatchError
from mmbixt.config import PROJECTS
from projects.studies.tools.knn import load_without_head, vote

CONFIG = 'xcit_s12_p16_dino_linear_in1k'
NANO = ['arch=nano12', 'frozen_stages=12']
OPTIONS = [f'model.backbone.{option}' for option in NANO]
OPTIONS += [f'model.{part}.in_channels=128' for part in ('neck', 'head')]
OPTIONS += ['model.neck.num_heads=4', 'model.neck.tokens_norm=False']


def test_nearer_images_have_more_votes():
    products = torch.tensor([[0.9, 0.8, 0.8], [0.5, 0.1, 0.0]])
    labels = torch.tensor([[2, 0, 0], [1, 0, 2]])
    scores = vote(products, labels, 4, 0.1)
    for row in range(2):
        for kind in range(4):
            pairs = zip(products[row].tolist(), labels[row].tolist(), strict=True)
            expected = sum(math.exp(x / 0.1) for x, label in pairs if label == kind)
            assert scores[row, kind].item() == pytest.approx(expected, rel=1e-5)
    assert scores.argmax(1).tolist() == [2, 1]


def test_all_weights_but_the_heads_are_needed():
    """Of any network: mmbixt's own refuse files that lack weights."""
    model = torch.nn.ModuleDict(
        {part: torch.nn.Linear(2, 3, bias=False) for part in ('backbone', 'head')}
    )
    state = {'backbone.weight': torch.ones(3, 2), 'head.weight': torch.ones(9, 2)}
    load_without_head(model, dict(state_dict=state))
    assert (model.backbone.weight == 1).all()
    with pytest.raises(CheckpointMismatchError, match=r'lacks weights of .*: backbone\.weight'):
        load_without_head(model, dict(state_dict={'head.weight': torch.ones(9, 2)}))


def test_a_file_of_dino(within, tmp_path):
    """Each training image is the nearest to itself."""
    write_few_scenes(tmp_path / 'data/sample')
    state = official_state('xcit_nano_12_p16')
    weights = {key: value for key, value in state.items() if not key.startswith('head.')}
    torch.save(weights, tmp_path / 'dino.pth')
    options = [*OPTIONS, *NO_WORKERS, 'test_dataloader.dataset.split=train']
    arguments = '--neighbours', 1, 3, '--sample', '--cfg-options', *options
    done = within(PROJECTS / 'studies/tools/knn.py', CONFIG, 'dino.pth', *arguments, cwd=tmp_path)
    assert '   1 neighbours: top-1 100.00, top-5 100.00' in done.stdout
    assert '   3 neighbours: top-1 ' in done.stdout
