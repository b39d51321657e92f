import json

import numpy as np
import pytest

from mmbixt.visualization.segmentation import (
    comparison_figure,
    learning_curve,
    paint,
    read_scalars,
)


def test_paint():
    painted = paint(np.array([[0, 1], [255, 0]], np.uint8), [(10, 20, 30), (40, 50, 60)])
    assert painted.tolist() == [[[10, 20, 30], [40, 50, 60]], [[255, 255, 255], [10, 20, 30]]]


def test_comparison_shows_every_scene_and_only_the_classes_there(tmp_path):
    image = np.zeros((8, 10, 3), np.uint8)
    truth = np.zeros((8, 10), np.uint8)
    truth[:, 5:] = 2
    truth[0] = 255
    prediction = np.zeros((8, 10), np.uint8)
    classes, palette = ('sky', 'tree', 'car'), [(0, 0, 255), (0, 255, 0), (255, 0, 0)]
    figure = comparison_figure([(image, truth, prediction)] * 2, classes, palette, 'title')
    figure.savefig(tmp_path / 'x.png')
    assert len(figure.axes) == 8
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ['sky', 'car']
    assert figure.axes[3].get_title() == 'wrong: 50% of the pixels'
    assert figure.axes[1].get_title() == 'truth'


def test_learning_curve_from_a_log(tmp_path):
    log = tmp_path / 'scalars.json'
    records = [dict(step=i, loss=1 / i) for i in range(1, 50)] + [dict(step=49, mIoU=40.0)]
    log.write_text('\n'.join(map(json.dumps, records)))
    figure = learning_curve(read_scalars(log), 'mIoU', 'title')
    figure.savefig(tmp_path / 'x.png')
    losses, smooth = figure.axes[0].get_lines()
    assert losses.get_ydata()[1] == 0.5
    assert smooth.get_xdata()[-1] == 49
    assert smooth.get_ydata()[0] == pytest.approx(0.75)
    assert figure.axes[1].get_lines()[0].get_xydata().tolist() == [[49, 40]]
