import pytest
import torch
from torch import nn

from mmbixt.checkpoints.state_dict import CheckpointMismatchError
from mmbixt.checkpoints.whole_state import load_whole_state


@pytest.fixture
def model():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))


def test_loads_every_weight(model):
    state = {key: torch.full_like(value, 3) for key, value in model.state_dict().items()}
    load_whole_state(model, {**state, 'of a classifier': torch.zeros(2)})
    assert all((value == 3).all() for value in model.state_dict().values())


def test_old_files_do_not_count_batches(model):
    state = {k: v for k, v in model.state_dict().items() if not k.endswith('tracked')}
    load_whole_state(model, state)


def test_half_a_model_is_refused(model):
    with pytest.raises(CheckpointMismatchError, match=r'lacks 1 weights of the model: 0\.bias'):
        load_whole_state(model, {k: v for k, v in model.state_dict().items() if k != '0.bias'})


def test_other_shapes_are_refused(model):
    state = {**model.state_dict(), '0.bias': torch.zeros(5)}
    with pytest.raises(CheckpointMismatchError, match=r'(?s)does not fit.*0\.bias'):
        load_whole_state(model, state)
