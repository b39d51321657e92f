import json

import numpy as np
import pytest
from test_reporting.runs import QUOTED, Reader

from mmbixt.reporting.charts import MOST_POINTS, Series, chart, nice_ticks, short, smooth, thin


def draw(*series, unit='loss'):
    return Reader(chart('Title', 'Note.', series, unit))


def line(values, style='one', dots=False):
    return Series('a line', np.column_stack([np.arange(1, len(values) + 1), values]), style, dots)


def test_line_is_where_its_values_are():
    page = draw(line([10.0, 0.0, 5.0], dots=True))
    [found] = page.all('polyline')
    places = [tuple(map(float, pair.split(','))) for pair in found['points'].split()]
    (x1, top), (x2, bottom), (x3, middle) = places
    assert x3 - x2 == pytest.approx(x2 - x1, abs=0.1)
    assert middle == pytest.approx((top + bottom) / 2)
    assert top < bottom  # SVG counts downwards
    assert len(page.all('circle')) == 3
    assert 'a line: 5 at iteration 3' in page.text


def test_everything_is_inside_the_picture():
    page = draw(line([1e-5, 123456.0, 3.0]), line([-5.0, 2.0, 1.0], 'two'))
    [svg] = page.all('svg')
    _, _, width, height = map(float, svg['viewbox'].split())
    for found in page.all('polyline'):
        for pair in found['points'].split():
            x, y = map(float, pair.split(','))
            assert 0 <= x <= width
            assert 0 <= y <= height


def test_small_values_have_a_common_power_of_ten():
    page = draw(line([1e-4, 2e-4]), unit='learning rate')
    assert 'learning rate (in 10⁻⁴)' in page.text
    assert '0.0002' not in page.text


def test_constant_and_single_values_can_be_drawn():
    for values in ([0.0], [0.0, 0.0], [3.0]):
        assert draw(line(values)).all('polyline')
    assert draw(Series('before', np.zeros((1, 2)), 'one')).all('polyline')


def test_values_for_the_script():
    page = draw(Series(QUOTED, np.array([[1.0, 2.0]]), 'one'))
    [figure] = page.all('figure')
    assert json.loads(figure['data-series']) == [{'name': QUOTED, 'points': [[1.0, 2.0]]}]


def test_long_runs_are_thinned_to_means():
    points = np.column_stack([np.arange(10_000), np.tile([0.0, 2.0], 5000)]).astype(float)
    thinned = thin(points)
    assert len(thinned) == MOST_POINTS
    np.testing.assert_allclose(thinned[:, 1], 1, atol=0.05)
    assert thin(points[:50]) is not None
    np.testing.assert_array_equal(thin(points[:50]), points[:50])


def test_smooth_is_a_mean_over_the_records_before():
    points = np.array([[10, 1.0], [20, 2.0], [30, 6.0]])
    np.testing.assert_allclose(smooth(points, 2), [[20, 1.5], [30, 4.0]])


def test_ticks_and_numbers():
    ticks = nice_ticks(0, 44.7)
    assert ticks[0] == 0
    assert ticks[-1] >= 44.7
    assert [short(value) for value in (0.25, 12.0, 160_000, 1500.0)] == [
        *('0.25', '12', '160k', '1500')
    ]
