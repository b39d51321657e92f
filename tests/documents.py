"""The pages of the documentation: their code, their site."""

import re
from pathlib import Path
from typing import NamedTuple

from mkdocs.commands.build import build
from mkdocs.config import load_config

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / 'README.md',
    ROOT / 'CONTRIBUTING.md',
    *sorted(ROOT.glob('docs/**/*.md')),
    *ROOT.glob('configs/*/README.md'),
    *ROOT.glob('projects/**/README.md'),
]
BLOCK = re.compile(
    r'^(?:<!-- (?:tested|file): (.+?) -->\n)?```(\w*)\n(.*?)^```$', re.DOTALL | re.MULTILINE
)


class Block(NamedTuple):
    """A block of code, with what the comment before it says.

    ``kind`` is that of ``<!-- tested: KIND -->``, or the name in ``<!-- file: NAME -->``, by which
    other blocks inherit from it.
    """

    place: str
    kind: str | None
    language: str
    code: str

    @property
    def is_program(self) -> bool:
        """Whether Python is to be run; else it is a config or a part of one."""
        return self.language == 'python' and bool(re.search(r'^(import|from) ', self.code, re.M))


def blocks(*languages: str) -> list[Block]:
    """All blocks in these languages."""
    found = []
    for page in PAGES:
        text = page.read_text()
        for match in BLOCK.finditer(text):
            line = text.count('\n', 0, match.start(2)) + 1
            found.append(Block(f'{page.relative_to(ROOT)}:{line}', *match.groups()))
        assert text.count('```') == 2 * len(BLOCK.findall(text)), f'{page}: an odd block'
    return [block for block in found if block.language in languages]


def shown(kind: str) -> list[str]:
    """The code of the blocks of a kind."""
    found = [block.code for block in blocks('python') if block.kind == kind]
    assert found, kind
    return found


def build_site(folder: Path) -> Path:
    """The site in strict mode: a link or an anchor that leads nowhere stops it."""
    build(load_config(str(ROOT / 'mkdocs.yml'), site_dir=str(folder), strict=True))
    return folder
