"""The report of a run in Chromium, with the screens of a desktop and of a phone."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from test_report.runs import HOSTILE, QUOTED, make_run, sums, train_record, write_work_dir

from mmbixt.report.collect import ReportData
from mmbixt.report.page import make_page
from mmbixt.report.work_dir import Run

TOOL = Path(__file__).parents[2] / 'tools/analysis/report.py'
DESK, PHONE = (1280, 900), (390, 844)


@pytest.fixture(scope='module')
def report(browser, tmp_path_factory):
    """Written by the tool from a work dir."""
    work_dir = make_run(tmp_path_factory.mktemp('user'))
    subprocess.run([sys.executable, TOOL, work_dir, '--images', '2'], check=True)
    return work_dir / 'report.html'


@pytest.fixture
def page(browser, report):
    """The report on a desktop; tests must cause no errors and no network requests."""
    browser.errors.clear()
    browser.requests.clear()
    browser.resize(*DESK)
    browser.open(report)
    yield browser
    assert browser.errors == []
    assert {url for url in browser.requests if not url.startswith('data:')} == {report.as_uri()}


def count(page, selector):
    return page.run(f'document.querySelectorAll({selector!r}).length')


def column(page, number):
    """The values of a column of the table of classes, from top to bottom."""
    cells = f'#classes tbody tr > :nth-child({number})'
    return page.run(f'[...document.querySelectorAll({cells!r})].map((cell) => cell.dataset.value)')


def order(page, number):
    return page.run(f'document.querySelector("#classes th:nth-child({number})").ariaSort')


def test_all_parts_exist_and_all_pictures_load(page):
    counted = [count(page, part) for part in ('section > h2', '.missing', 'figcaption')]
    assert counted == [5, 0, 4]
    pictures = '[...document.querySelectorAll(".picture img")]'
    page.run(f'Promise.all({pictures}.map((image) => image.decode()))')
    widths = page.run(f'{pictures}.map((image) => image.naturalWidth)')
    assert len(widths) == 4
    assert min(widths) > 500


def test_clicks_on_a_heading_sort(page):
    names = column(page, 1)
    for wanted in ('ascending', 'descending'):
        page.click('#classes th:nth-child(1) button')
        assert column(page, 1) == sorted(names, reverse=wanted == 'descending')
        assert (order(page, 1), order(page, 3)) == (wanted, 'none')
    share = 3  # some above and some below 10 %, so that the order of numbers and of text differ
    values = column(page, share)
    page.click(f'#classes th:nth-child({share}) button')
    assert order(page, share) == 'descending'
    assert column(page, share) == sorted(values, key=float, reverse=True) != sorted(values)[::-1]


def test_clicks_enlarge_a_picture_and_show_values_of_a_chart(page):
    is_open = 'document.getElementById("enlarged").open'
    source = 'document.querySelector("{} img").src'
    page.click('.picture img')
    assert page.run(is_open)
    assert page.run(source.format('#enlarged')) == page.run(source.format('.picture'))
    page.click('#enlarged')
    assert not page.run(is_open)
    page.click('.chart svg')
    text = page.run('document.querySelector(".readout").textContent')
    # the centre of the picture is left of the centre of the axes
    assert text == 'iteration 50: 0.2 (as recorded)'


@pytest.mark.parametrize('size', [DESK, PHONE], ids=str)
def test_page_fits_the_screen(page, size):
    page.resize(*size, phone=size == PHONE)
    page.run('document.querySelectorAll("details").forEach((part) => { part.open = true })')
    assert page.run('document.documentElement.scrollWidth') <= size[0]
    assert page.run('innerWidth') == size[0]  # phones enlarge the view for elements that overflow


def test_missing_values_are_last_and_names_are_escaped(browser, tmp_path):
    run = Run(write_work_dir(tmp_path, f'note = {QUOTED + HOSTILE!r}', [train_record(10)]))
    run.name = HOSTILE
    truth = np.arange(4, dtype=np.uint8).repeat(8)[None].repeat(20, 0)
    prediction = np.roll(np.where(truth == 1, 2, truth), 2, axis=1)  # class 1 is not predicted
    counted = sums([HOSTILE, QUOTED, 'c', 'd'], (truth, prediction))
    file = tmp_path / 'report.html'
    file.write_text(make_page(ReportData(run, counts=counted, band='band3px', problem=QUOTED)))
    browser.errors.clear()
    browser.resize(*DESK)  # other tests have made it narrow
    browser.open(file)
    gap = 5
    for descending in (True, False):
        browser.click(f'#classes th:nth-child({gap}) button')
        *known, last = column(browser, gap)
        assert last == ''
        assert known == sorted(known, key=float, reverse=descending)
    assert browser.run('document.querySelector("h1").textContent') == HOSTILE
    assert browser.run('window.broken') is None
    assert browser.errors == []
