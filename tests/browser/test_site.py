"""The pages of the documentation in Chromium, on a desktop and on a phone."""

import pytest
from browser.chromium import look
from documents import build_site

SCRIPT = """({
  width: document.documentElement.scrollWidth,
  broken: [...document.images].filter(x => x.complete && !x.naturalWidth).map(x => x.src),
  flat: [...document.querySelectorAll('math')]
    .filter(x => x.getBoundingClientRect().height < 5).length,
  requests: performance.getEntriesByType('resource').map(x => x.name).filter(x => /^http/.test(x)),
})"""


@pytest.fixture(scope='module')
def pages(tmp_path_factory):
    site = build_site(tmp_path_factory.mktemp('site'))
    return [page for page in site.rglob('*.html') if page.name != '404.html']


@pytest.mark.parametrize('size', [(1300, 900), (390, 844)], ids=['desktop', 'phone'])
def test_pages_fit_the_screen_and_need_no_network(pages, size):
    assert len(pages) > 20
    for page, seen in zip(pages, look(pages, SCRIPT, size), strict=True):
        assert seen.pop('width') <= size[0], page
        assert seen == dict(broken=[], flat=0, requests=[]), page
