import json
import sys

import paper_table
import pytest
from helpers import put_segmentor_in_cache
from running import write_few_scenes
from test_report.runs import train_record, write_log

METAFILE = """
Collections: [{Name: XCiT}]
Models:
  - Name: dense_ade20k
    Results:
      - {Task: Semantic Segmentation, Metrics: {mIoU: 45.0, mIoU (ms+flip): 46.0}, Source: Table 5}
      - Task: Semantic Segmentation
        Metrics: {mIoU: 45.60}
        Source: repository
        Row: other regions
        Options: model.topks="(1,4)"
  - Name: semfpn_xcit_t12_p16_ade20k
    Results:
      - Task: Semantic Segmentation
        Metrics: {mIoU: 38.1}
        Source: Table 5
        Weights: xcit://ade-semfpn-tiny12-p16
"""


@pytest.fixture
def table(tmp_path, monkeypatch, capsys):
    """Calls the tool in a folder, with the metafile of one family; returns its output."""
    (tmp_path / 'configs/xcit').mkdir(parents=True)
    (tmp_path / 'configs/xcit/metafile.yml').write_text(METAFILE)
    for name in ('CONFIGS', 'PROJECTS'):
        monkeypatch.setattr(paper_table, name, tmp_path / name.lower())
    paper_table.read_metafile.cache_clear()
    monkeypatch.chdir(tmp_path)

    def table(*arguments):
        monkeypatch.setattr(sys, 'argv', ['paper_table.py', *arguments])
        paper_table.main()
        return capsys.readouterr().out

    return table


def log(name, train=(), tested=None, day=1, tta=False, **scores):
    """The logs of a training or of a test in a work dir."""
    start = write_log(paper_table.Path('work_dirs', name), f'2025010{day}_100000', train)
    model = dict(module={}) if tta else {}
    (start / 'vis_data/config.py').write_text(f'model = {model}\nload_from = {tested!r}\n')
    if scores:
        (start / f'{start.name}.json').write_text(json.dumps(scores))


def lines(said):
    """The words of each line."""
    return [' '.join(line.split()) for line in said.splitlines()]


def test_scores_of_work_dirs(table):
    near = {'band3px/mIoU': 24.0, 'boundary0.02/mIoU': 30.0}
    log('dense_ade20k', [train_record(10), {'mIoU': 44.5, 'step': 10}])
    last = 'work_dirs/dense_ade20k/iter_10.pth'
    log('dense_ade20k-tta', tested=last, tta=True, mIoU=47.0)
    log('semfpn_xcit_t12_p16_ade20k', [train_record(10), {'mIoU': 39.1, 'step': 10}])
    published = 'xcit://ade-semfpn-tiny12-p16'
    log('semfpn_xcit_t12_p16_ade20k-published', tested=published, mIoU=38.0, **near)
    # what is not of the rows, in the same work dirs
    log('dense_ade20k', tested=last, tta=True, day=2, mIoU=48.0)
    log('semfpn_xcit_t12_p16_ade20k', tested=published, day=2, mIoU=37.0)
    ours = [train_record(10), {'mIoU': 36.0, 'step': 10}]
    log('semfpn_xcit_t12_p16_ade20k-published', ours, day=2)
    said = lines(table('*ade20k'))
    assert said.count('dense_ade20k mIoU 45.0 44.50 -0.50') == 1
    assert 'dense_ade20k mIoU (ms+flip) 46.0 47.00 +1.00' in said
    assert 'semfpn_xcit_t12_p16_ade20k (published weights) mIoU 38.1 38.00 -0.10' in said
    assert 'semfpn_xcit_t12_p16_ade20k mIoU 38.1 39.10 +1.00' in said
    assert [line for line in said if line.startswith('python')] == [
        'python tools/train.py dense_ade20k --work-dir work_dirs/dense_ade20k-other-regions '
        "--cfg-options 'model.topks=(1,4)'"
    ]
    said = lines(table('semfpn*', '--boundary'))
    assert 'metric paper here difference mIoU in band3px Boundary IoU' in said
    assert said[-4].endswith('(published weights) mIoU 38.1 38.00 -0.10 24.00 30.00')
    assert said[-1] == (
        'python tools/test.py semfpn_xcit_t12_p16_ade20k '
        'work_dirs/semfpn_xcit_t12_p16_ade20k/CHECKPOINT --boundary '
        '--work-dir work_dirs/semfpn_xcit_t12_p16_ade20k'
    )


@pytest.mark.zoo
def test_published_weights_are_tested(table, tmp_path, monkeypatch):
    """On generated scenes: a file of the authors' layout in the cache."""
    rows = METAFILE.replace('mIoU: 38.1', 'mIoU: 38.1, mIoU (ms+flip): 39.0')
    (tmp_path / 'configs/xcit/metafile.yml').write_text(rows)
    monkeypatch.setenv('TORCH_HOME', str(tmp_path))
    put_segmentor_in_cache(tmp_path)
    write_few_scenes(tmp_path / 'data/sample')
    said = lines(table('semfpn*', '--evaluate', '--boundary', '--', '--sample'))
    rows = [line for line in said if line.startswith('semfpn_xcit_t12_p16')]
    assert [row.count('–') for row in rows] == [0, 2]  # with augmentation, none near boundaries
