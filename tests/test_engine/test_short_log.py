"""The line of the log after an evaluation, and the number of a step after a resume."""

import json

import pytest
from mmengine.config import Config
from mmengine.evaluator import BaseMetric
from mmengine.runner import Runner
from running import ONE_SAMPLE, FirstClass, fresh_mmengine, make_loader

SHOWN = {'band3px/mIoU': 3.0, 'band3px/gap': 4.0, 'boundary0.02/mIoU': 5.0}
HIDDEN = {'band1px/mIoU': 2.0, 'boundary0.005/mIoU': 6.0, 'boundaryF3px/mF': 7.0, 'all/aAcc': 8.0}


class Given(BaseMetric):
    """Scores that are given."""

    default_prefix = ''

    def __init__(self, scores):
        super().__init__()
        self.scores = scores

    def process(self, data_batch, data_samples):
        self.results.append(0)

    def compute_metrics(self, results):
        return self.scores


@pytest.mark.parametrize('overall', ['mIoU', 'all/mIoU'])
def test_the_line_has_four_scores_and_the_file_all(tmp_path, overall):
    shown = {overall: 1.0, **SHOWN}
    scores = {'all/mIoU': 1.0, **shown, **HIDDEN}
    config = dict(
        model=dict(type=FirstClass),
        work_dir=str(tmp_path),
        test_dataloader=make_loader(ONE_SAMPLE, 'DefaultSampler', 1),
        test_cfg=dict(),
        test_evaluator=dict(type=Given, scores=scores),
        visualizer=dict(type='Visualizer', vis_backends=[dict(type='LocalVisBackend')]),
        log_processor=dict(type='mmbixt.ShortLogProcessor', by_epoch=False, num_digits=2),
    )
    with fresh_mmengine():
        Runner.from_cfg(Config(config)).test()
    [log] = tmp_path.glob('*/*.log')
    [line] = [line for line in log.read_text().splitlines() if 'band3px/mIoU: ' in line]
    said = line.partition('/1]')[2].partition('data_time')[0].split()
    found = dict(zip(said[::2], said[1::2], strict=True))
    assert found == {f'{name}:': f'{score:.2f}' for name, score in shown.items()}
    [file] = tmp_path.glob('*/*.json')
    assert scores.items() <= json.loads(file.read_text()).items()
