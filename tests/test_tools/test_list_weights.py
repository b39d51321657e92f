"""The list of published weights and of downloaded files."""

from mmbixt.checkpoints.sources import SOURCES


def test_all_and_one(within, tmp_path, monkeypatch):
    monkeypatch.setenv('TORCH_HOME', str(tmp_path))
    cache = tmp_path / 'hub/checkpoints'
    cache.mkdir(parents=True)
    (cache / 'bixt-tiny-16-d13.pth').write_bytes(bytes(2_500_000))
    lines = within('list_weights.py').stdout.splitlines()
    assert {line.split()[0] for line in lines if '://' in line} >= set(SOURCES)
    (here,) = (line for line in lines if ' MB' in line)
    assert here.split()[0] == 'bixt://tiny-16-d13'
    assert here.endswith('top-1 80.44                2.5 MB')
    assert any(line.startswith('bixt://tiny-8 ') and 'patch_stride=8' in line for line in lines)
    one = SOURCES['swin://mm-tiny']
    said = within('list_weights.py', one.name).stdout
    assert one.url in said
    assert one.model_text in said
