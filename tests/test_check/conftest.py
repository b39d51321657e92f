import pytest
from samples import write_samples


@pytest.fixture
def root(tmp_path):
    write_samples(tmp_path)
    return tmp_path
