"""Scenes that several tests look at; each is made once."""

import pytest

from mmbixt.sample.sample_data import FIRST_SEED
from mmbixt.sample.scenes import make_scene


@pytest.fixture(scope='session')
def train_scenes():
    return [make_scene(FIRST_SEED['train'] + k) for k in range(24)]


@pytest.fixture(scope='session')
def val_scenes():
    """The validation scenes that ``write_sample_data`` writes by default."""
    return [make_scene(FIRST_SEED['val'] + k) for k in range(32)]
