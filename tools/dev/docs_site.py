"""What `mkdocs build` does beyond its plugins, so that the pages also read well on GitHub.

- Pages are where they are in the repository, so that their links lead to the same files there and
  in the site: README.md, docs/ and the READMEs of configs and projects. A source file is shown as
  plain text.
- Equations become MathML here: browsers draw it without a script.
- In reference.md, a list item [`name`](file.py) is replaced by the docstring.
"""

import html
import re
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
PAGES = '*.md', 'docs/**/*.*', '*/*/README.md', 'projects/README.md'
SOURCES = 'LICENSE', 'NOTICE', 'CITATION.cff', '*.yml', '{}/**/*.py', '{}/**/*.sh', '{}/**/*.txt'
FOLDERS = 'configs', 'mmbixt', 'projects', 'requirements', 'tests', 'tools'
REFERENCE = re.compile(r'^- \[`(\w+)`\]\(\.\./(mmbixt/\S+?)(?:/__init__)?\.py\)$', re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The files of the repository, beside those of the theme."""

    def file(path: Path, ending: str = '') -> File:
        name = path.relative_to(ROOT).as_posix()
        to = name + ending if ending else None
        return File(name, str(ROOT), config.site_dir, config.use_directory_urls, dest_uri=to)

    patterns = {pattern.format(folder) for pattern in SOURCES for folder in FOLDERS}
    pages = [file(path) for pattern in PAGES for path in ROOT.glob(pattern)]
    sources = [file(path, '.txt') for pattern in patterns for path in ROOT.glob(pattern)]
    theme = [x for x in files if x.src_dir != config.docs_dir]
    return Files([*theme, *pages, *sources])


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    def docstring(item: re.Match) -> str:
        return f'::: {item[2].replace("/", ".")}.{item[1]}'

    is_reference = page.file.src_uri == 'docs/reference.md'
    return REFERENCE.sub(docstring, markdown) if is_reference else markdown


def on_page_content(text: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    def to_mathml(equation: re.Match) -> str:
        start, tag, tex = equation.groups()
        display = 'block' if tag == 'div' else 'inline'
        return start + convert(html.unescape(tex).strip(), display=display)

    # \( ... \) or \[ ... \]
    equation = r'(<(span|div) class="arithmatex">)\s*\\[([](.+?)\\[)\]]'
    text = re.sub(equation, to_mathml, text, flags=re.DOTALL)
    # roles and literal blocks of docstrings, which are reStructuredText
    text = re.sub(r':(?:class|func|meth|mod|data):(?=<code>)', '', text)
    return text.replace('::</p>', ':</p>')
