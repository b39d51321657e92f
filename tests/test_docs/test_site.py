"""The site of the documentation: it builds without a warning, and says what there is."""

import re

import pytest
from cases import NETWORKS
from documents import PAGES, ROOT, build_site
from helpers import CONFIGS
from variants import FAMILIES

from mmbixt import backbones
from mmbixt.backbones.published import PUBLISHED
from mmbixt.check.names import registered
from mmbixt.checkpoints.sources import SOURCES
from mmbixt.visualization.attention import FAMILIES as PICTURES

DOCS = ROOT / 'docs'
REFERENCE = (DOCS / 'reference.md').read_text()


@pytest.fixture(scope='module')
def site(tmp_path_factory):
    return build_site(tmp_path_factory.mktemp('site'))


def test_every_page_is_complete_and_needs_no_network(site):
    pages = {path.relative_to(site).as_posix(): path.read_text() for path in site.rglob('*.html')}
    assert {'index.html', 'configs/xcit/index.html', 'docs/how/bixt.html'} < pages.keys()
    elsewhere = re.compile(r'<(script|img|link|iframe)[^>]* (src|href)="?(https?:)?//')
    for name, page in pages.items():
        assert not elsewhere.search(page), name
        assert not re.search(r'class="arithmatex">\s*\\[([]', page), f'{name}: an equation'
    assert pages['docs/how/xcit.html'].count('<math') > 20
    assert 'Cross-covariance image transformer' in pages['docs/reference.html']


@pytest.mark.parametrize('page', PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_is_plain_markdown(page):
    """What GitHub renders: no admonitions, tabs, attributes, directives, escapes in equations."""
    text = page.read_text()
    for equation in re.findall(r'\$[^$`\n]+\$', re.sub('```.*?```', '', text, flags=re.DOTALL)):
        assert not re.search(r'\\[^A-Za-z]', equation), equation
    assert not re.search(r'^(!!!|\?\?\?|===|:::)|\{[:.#][^}]*\}\s*$', text, re.MULTILINE)


def test_reference_lists_all_components_and_tools():
    private = {'NumberedBatches', 'default_collate'}  # of ExactResumeHook
    components = registered('mmbixt').keys() - private
    assert {name for name in components if f'mmbixt.{name}`' not in REFERENCE} == set()
    tools = [*ROOT.glob('tools/*.??'), *ROOT.glob('tools/analysis/*.py')]
    assert [str(tool) for tool in tools if f'`{tool.relative_to(ROOT)}`' not in REFERENCE] == []


@pytest.mark.parametrize('name', backbones.__all__)
def test_backbone_is_in_every_place(name):
    """Those of docs/adding_a_backbone.md; other tests find the rest."""
    kind, published = f'mmbixt.{name}', [x.name for x in PUBLISHED if x.family == name]
    configs = [path.read_text() for path in CONFIGS.rglob('*.py')]
    explained = [path.read_text() for path in DOCS.glob('how/*.md')]
    places = {
        'FAMILIES of tests/variants.py': kind in [x['type'] for x in FAMILIES.values()],
        'PUBLISHED': bool(published),
        'NETWORKS of tests/cases.py': kind in [x['type'] for x in NETWORKS.values()],
        'sources of checkpoints': any(f'{kind}: ' in x.fills for x in SOURCES.values()),
        'pictures of attention': getattr(backbones, name) in PICTURES,
        'configs': any(f"type='{kind}'" in text for text in configs),
        'README.md': f'`{kind}`' in (ROOT / 'README.md').read_text(),
        'docs/reference.md': f'- [`{name}`]' in REFERENCE,
        'docs/how': any(f'`{kind}`' in text for text in explained),
    }
    missing = [place for place, there in places.items() if not there]
    assert not missing, f'{kind} is missing in: {", ".join(missing)}'
