"""The site of the documentation: it builds without a warning, and says what there is."""

import re

from documents import ROOT, build_site
from mmengine.registry import Registry

import mmbixt.registry

REFERENCE = (ROOT / 'docs/reference.md').read_text()


def test_every_page_is_complete_and_needs_no_network(tmp_path):
    site = build_site(tmp_path)
    pages = {path.relative_to(site).as_posix(): path.read_text() for path in site.rglob('*.html')}
    assert {'index.html', 'configs/xcit/index.html', 'docs/how/bixt.html'} < pages.keys()
    elsewhere = re.compile(r'<(script|img|link|iframe)[^>]* (src|href)="?(https?:)?//')
    for name, page in pages.items():
        assert not elsewhere.search(page), name
        assert not re.search(r'class="arithmatex">\s*\\[([]', page), f'{name}: an equation'
    for path in ROOT.glob('docs/how/*.md'):
        equations = re.findall(r'\$[^$]+\$|^```math', path.read_text(), re.MULTILINE)
        assert pages[f'docs/how/{path.stem}.html'].count('<math') == len(equations) > 0
    assert 'Cross-covariance image transformer' in pages['docs/reference.html']


def test_reference_lists_all_components_and_tools():
    private = {'default_collate'}
    registries = [x for x in vars(mmbixt.registry).values() if isinstance(x, Registry)]
    for registry in registries:
        registry.import_from_location()
    types = [item for registry in registries for item in registry.module_dict.items()]
    ours = {name for name, kind in types if kind.__module__.startswith('mmbixt')}  # no projects'
    components = ours - private
    assert {name for name in components if f'mmbixt.{name}`' not in REFERENCE} == set()
    tools = [*ROOT.glob('tools/*.??'), *ROOT.glob('tools/analysis/*.py')]
    assert [str(tool) for tool in tools if f'`{tool.relative_to(ROOT)}`' not in REFERENCE] == []
