import numpy as np
import pytest
import torch


@pytest.fixture(autouse=True)
def _fixed_seed():
    torch.manual_seed(0)
    np.random.seed(0)


@pytest.fixture
def fresh_compiler():
    """The compiler counts how often it has compiled a function, and gives up."""
    torch._dynamo.reset()
