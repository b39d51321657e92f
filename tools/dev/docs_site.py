"""What `mkdocs build` does beyond its plugins, so that the pages also read well on GitHub.

- Pages may be anywhere in the repository: README.md is the first one, the READMEs of configs are
  pages, and a source file that a page links to becomes a page of highlighted code. Links between
  pages are rewritten from paths of the repository to those of the site. [`name`](file.py) leads to
  the line that defines the function or class ``name``.
- Equations become MathML here: browsers draw it without a script.
- In reference.md, a list item that is such a link is replaced by the docstring.
"""

import html
import logging
import posixpath
import re
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
LOG = logging.getLogger('mkdocs.hooks.docs_site')  # its warnings fail a strict build
# the text of a relative link, its path, and its anchor
LINK = re.compile(r'\[([^\]]*)\]\((?!\w+:|#)([^)\s#]+)(#[^)\s]*)?\)')
REFERENCE = re.compile(r'^- \[`(\w+)`\]\(\.\./(mmbixt/\S+)\.py\)$', re.MULTILINE)
LANGUAGES = {'.py': 'python', '.sh': 'bash', '.txt': 'text', '.yml': 'yaml'}


def in_site(path: str) -> str:
    """The place of a file of the repository among the pages."""
    path = path.removeprefix('docs/')
    return path if Path(path).suffix not in LANGUAGES else f'{path}.md'


def in_repository(page: str) -> str:
    """The inverse of :func:`in_site`."""
    if (ROOT / 'docs' / page).exists():
        return f'docs/{page}'
    return page if (ROOT / page).exists() else page.removesuffix('.md')


def targets_of(path: str, markdown: str) -> dict[str, str]:
    """The relative links of a file, and the paths in the repository that they lead to."""
    folder = posixpath.dirname(path)
    text = re.sub(r'^ *```.*?^ *```|`[^`\n]*`', '', markdown, flags=re.DOTALL | re.MULTILINE)
    relative = {link for _, link, _ in LINK.findall(text)}
    return {link: posixpath.normpath(posixpath.join(folder, link)) for link in relative}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add all files that pages outside docs/ link to, directly or indirectly."""
    waiting = ['README.md', *(in_repository(file.src_uri) for file in files.documentation_pages())]
    seen = set(waiting)
    for path in waiting:  # the list grows
        if not path.startswith('docs/'):
            add(files, config, path)
        if path.endswith('.md'):
            for target in targets_of(path, (ROOT / path).read_text()).values():
                if target not in seen and (ROOT / target).is_file():
                    seen.add(target)
                    waiting.append(target)
    return files


def add(files: Files, config: MkDocsConfig, path: str) -> None:
    language = LANGUAGES.get(Path(path).suffix)
    if language is None:
        file = File.generated(config, in_site(path), abs_src_path=str(ROOT / path))
    else:
        head = f'---\nsearch: {{exclude: true}}\n---\n\n# {path}\n\n'
        code = f'{head}````{language}\n{(ROOT / path).read_text()}````\n'
        file = File.generated(config, in_site(path), content=code)
    files.append(file)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    path = in_repository(page.file.src_uri)
    targets = targets_of(path, markdown)

    def rewrite(found: re.Match) -> str:
        text, link, anchor = found.groups()
        if link not in targets:  # within code
            return found[0]
        target = targets[link]
        if not (ROOT / target).is_file():
            LOG.warning('%s links to %s, which is no file', path, link)
        site = posixpath.relpath(in_site(target), posixpath.dirname(page.file.src_uri) or '.')
        return f'[{text}]({site}{anchor or ""})'

    if path == 'docs/reference.md':
        markdown = REFERENCE.sub(docstring, markdown)
    if path.endswith('.md'):  # not code
        markdown = LINK.sub(rewrite, markdown)
    return markdown


def docstring(found: re.Match) -> str:
    """The directive of mkdocstrings for a function or class."""
    name, path = found.groups()
    return f'::: {path.removesuffix("/__init__").replace("/", ".")}.{name}'


def on_page_content(text: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    def to_definition(found: re.Match) -> str:
        link, name = found.groups()
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page.url), link))
        return f'<a href="{link}.html{definition(name, target, page)}"><code>{name}</code></a>'

    text = re.sub(r'<a href="([^"#]+\.py)\.html"><code>(\w+)</code></a>', to_definition, text)
    for equation, display in ((r'\\\((.+?)\\\)', 'inline'), (r'\\\[(.+?)\\\]', 'block')):

        def to_mathml(found: re.Match, display: str = display) -> str:
            return found[1] + convert(html.unescape(found[2]).strip(), display=display)

        pattern = rf'(<(?:span|div) class="arithmatex">\s*){equation}'
        text = re.sub(pattern, to_mathml, text, flags=re.DOTALL)
    # roles and literal blocks of docstrings, which are reStructuredText
    text = re.sub(r':(?:class|func|meth|mod|data):(?=<code>)', '', text)
    return text.replace('::</p>', ':</p>')


def definition(name: str, target: str, page: Page) -> str:
    """The anchor of the line of a file that defines a function or class."""
    for number, line in enumerate((ROOT / target).read_text().splitlines(), 1):
        if re.match(rf' *(def|class) {name}\b', line):
            return f'#__codelineno-0-{number}'
    LOG.warning('%s: %s does not define %s', page.file.src_uri, target, name)
    return ''
