"""Scenes that several tests look at; each is made once."""

import pytest

from mmbixt.datasets.sample_data import scene_seed
from mmbixt.datasets.scenes import make_scene


@pytest.fixture(scope='session')
def train_scenes():
    return [make_scene(scene_seed('train', number)) for number in range(1, 57)]


@pytest.fixture(scope='session')
def val_scenes():
    """The validation scenes that ``write_sample_data`` writes by default."""
    return [make_scene(scene_seed('val', number)) for number in range(1, 33)]
