"""The list of published weights and of downloaded files."""

import pytest

from mmbixt.checkpoints.sources import SOURCES


@pytest.fixture
def listed(within, tmp_path, monkeypatch):
    monkeypatch.setenv('TORCH_HOME', str(tmp_path))
    cache = tmp_path / 'hub/checkpoints'
    cache.mkdir(parents=True)
    (cache / 'bixt-tiny-16-d13.pth').write_bytes(bytes(2_500_000))
    return lambda *names, **options: within('list_weights.py', *names, **options).said


def test_all_one_and_none(listed):
    lines = listed().splitlines()
    assert {line.split()[0] for line in lines if '://' in line} >= set(SOURCES)
    (here,) = (line for line in lines if ' MB' in line)
    assert here.split()[0] == 'bixt://tiny-16-d13'
    assert here.endswith('top-1 80.44                2.5 MB')
    one = SOURCES['swin://mm-tiny']
    output = listed(one.name)
    assert one.url in output
    assert one.model_text in output
    assert 'Similar names: xcit://tiny12' in listed('xcit://tiny_12', fails=True)
