"""The pages of the documentation in Chromium, on a desktop and on a phone."""

import pytest
from documents import build_site

BROKEN = '[...document.images].filter(x => x.complete && !x.naturalWidth).map(x => x.src)'
FLAT = "[...document.querySelectorAll('math')].filter(x => x.getBoundingClientRect().height < 5)"


@pytest.fixture(scope='module')
def pages(tmp_path_factory):
    site = build_site(tmp_path_factory.mktemp('site'))
    return [page for page in site.rglob('*.html') if not {'mmbixt', '404.html'} & {*page.parts}]


@pytest.mark.parametrize('size', [(1300, 900), (390, 844, True)], ids=['desktop', 'phone'])
def test_pages(browser, pages, size):
    """They fit the screen, and cause no errors and no network requests."""
    browser.resize(*size)
    browser.errors.clear()
    browser.requests.clear()
    assert len(pages) > 20
    for page in pages:
        browser.open(page)
        assert browser.run('document.documentElement.scrollWidth') <= size[0], page
        assert browser.run(BROKEN) == []
        assert browser.run(f'{FLAT}.length') == 0
    assert browser.errors == []
    assert {url.partition(':')[0] for url in browser.requests} <= {'file', 'data', 'blob'}
