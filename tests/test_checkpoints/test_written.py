import os
from pathlib import Path

import torch

from mmbixt.checkpoints.written import written_checkpoints


def write(path, time):
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({'weight': torch.zeros(2)}, path)
    os.utime(path, (time, time))
    return path


def test_the_named_file_is_first_and_a_damaged_one_is_told(tmp_path):
    old, new = (write(tmp_path / f'iter_{n}.pth', n) for n in (1, 2))
    assert list(written_checkpoints(tmp_path, {})) == [(new, None), (old, None)]
    (tmp_path / 'last_checkpoint').write_text(f'{old}\n')
    assert [path for path, _ in written_checkpoints(tmp_path, {})] == [old, new]
    old.write_bytes(old.read_bytes()[:-100])
    (_, problem), other = written_checkpoints(tmp_path, {})
    assert problem
    assert other == (new, None)


def test_a_copy_in_any_order_uses_its_latest_iteration(tmp_path):
    # 20 is of an earlier run
    files = {n: write(tmp_path / f'iter_{n}.pth', 100 - n) for n in (20, 12, 4, 16)}
    original = write(tmp_path / 'original/iter_16.pth', 1)
    (tmp_path / 'last_checkpoint').write_text(str(original))
    found = [path for path, _ in written_checkpoints(tmp_path, {})]
    assert found == [*(files[n] for n in (16, 12, 4, 20)), original]


def test_out_dir_and_a_relative_folder(tmp_path, monkeypatch):
    cfg = dict(default_hooks=dict(checkpoint=dict(out_dir='out')))
    older = write(tmp_path / 'run/iter_2.pth', 1)  # from before out_dir was set
    new, newest = (write(tmp_path / f'out/run/iter_{n}.pth', n) for n in (2, 3))
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'run/last_checkpoint').write_text('out/run/iter_3.pth')
    found = [path for path, _ in written_checkpoints(Path('run'), cfg)]
    assert found == [newest, new, older]
