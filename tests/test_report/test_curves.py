import re
from xml.etree import ElementTree

import numpy as np
import pytest
from test_report.runs import val_record, write_work_dir

from mmbixt.report.curves import SVG, draw, training_charts
from mmbixt.report.work_dir import Run


def svg(*lines, last_step=3):
    """Parse a picture, which must be well-formed XML."""
    return ElementTree.fromstring(draw(lines, 'loss', last_step))


def line(values, kind='one'):
    return 'a line', kind, [[step, value] for step, value in enumerate(values, 1)]


def places(picture, kind):
    """Points (P,2) of a line."""
    path = picture.find(f'.//{SVG}g[@class="{kind}"]/{SVG}path').get('d')
    return np.array([pair.split() for pair in re.findall(r'[ML] (\S+ \S+)', path)], float)


def test_lines_have_their_values_and_are_inside_the_picture():
    picture = svg(line([10.0, 0.0, 5.0], 'one dots'))
    (x1, top), (x2, bottom), (x3, middle) = places(picture, 'one dots')
    assert x3 - x2 == pytest.approx(x2 - x1)
    assert middle == pytest.approx((top + bottom) / 2)
    assert top < bottom  # the y axis of SVG points down
    assert len(picture.findall(f'.//{SVG}use')) == 3
    for values in ([1e-5, 123456.0, -5.0], [0.0, 0.0], [3.0]):
        picture = svg(line(values))
        points, size = places(picture, 'one'), picture.get('viewBox').split()[2:]
        assert (points >= 0).all()
        assert (points <= np.array(size, float)).all()


def test_long_trainings_also_have_a_smoothed_curve(tmp_path):
    records = [{'loss': float(step % 3), 'step': step} for step in range(1, 61)]
    run = Run(write_work_dir(tmp_path, records=[*records, val_record(10, 20.0)]))
    charts = training_charts(run, 'band3px')
    assert not charts['rate']
    _, (label, _, points) = charts['loss']
    assert label == 'mean of 3 records'
    np.testing.assert_allclose(points, [[step, 1.0] for step in range(3, 61)])
    assert len(charts['validation']) == 2
