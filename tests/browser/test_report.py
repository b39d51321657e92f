"""The report of a run in Chromium, with the screens of a desktop and of a phone."""

import pytest
from browser.chromium import look
from helpers import CONFIGS, python
from test_report.runs import make_run

TOOL = CONFIGS.parent / 'tools/analysis/report.py'
SCRIPT = """(async () => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const enlarged = document.getElementById('enlarged');
  const pictures = all('.picture img');
  await Promise.all(pictures.map((image) => image.decode()));
  const seen = {
    parts: ['section > h2', '.missing', 'figcaption'].map((part) => all(part).length),
    widths: pictures.map((image) => image.naturalWidth),
    loaded: performance.getEntriesByType('resource').map((x) => x.name),
  };
  const sort = (column) => {
    document.querySelector(`#classes th:nth-child(${column}) button`).click();
    return all(`#classes tbody tr > :nth-child(${column})`).map((cell) => cell.dataset.value);
  };
  seen.names = [sort(1), sort(1)];
  seen.shares = [sort(3), sort(3)];
  pictures[0].click();
  seen.enlarged = [enlarged.open, enlarged.querySelector('img').src === pictures[0].src];
  enlarged.click();
  seen.enlarged.push(enlarged.open);
  const box = document.querySelector('.chart .grid path').getBoundingClientRect();
  const at = {clientX: box.x + box.width / 2};
  document.querySelector('.chart svg').dispatchEvent(new PointerEvent('pointermove', at));
  seen.values = document.querySelector('.readout').textContent;
  all('details').forEach((part) => { part.open = true; });
  seen.width = document.documentElement.scrollWidth;
  return seen;
})()"""


@pytest.fixture(scope='module')
def report(tmp_path_factory):
    """Written by the tool from a work dir."""
    work_dir = make_run(tmp_path_factory.mktemp('user'))
    python(TOOL, work_dir, '--images', 2)
    return work_dir / 'report.html'


@pytest.mark.parametrize('size', [(1280, 900), (390, 844)], ids=['desktop', 'phone'])
def test_report_is_complete_and_reacts(report, size):
    (seen,) = look([report], SCRIPT, size)
    assert seen['parts'] == [5, 0, 4]
    assert len(seen['widths']) == 4
    assert min(seen['widths']) > 500
    assert [url for url in seen['loaded'] if not url.startswith('data:')] == []
    names, reversed_names = seen['names']
    assert names == sorted(names) == reversed_names[::-1]
    descending, ascending = ([*map(float, values)] for values in seen['shares'])
    assert descending == sorted(ascending, reverse=True)
    assert ascending == sorted(ascending)
    assert seen['enlarged'] == [True, True, False]
    assert seen['values'] == 'iteration 50: 0.2 (as recorded)'
    assert seen['width'] <= size[0]
