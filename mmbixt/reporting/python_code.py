"""Python as it is read best: its parts in colours."""

import re

from mmbixt.reporting.markup import Markup, as_markup, element

PARTS = re.compile(
    r"""(?P<string>'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*")
    |(?P<comment>\#.*)
    |(?P<word>\b(?:True|False|None)\b)
    |(?P<number>(?<![\w.])-?\d[\w.+-]*)
    |(?P<key>\b[A-Za-z_]\w*(?=\s*=))""",
    re.VERBOSE,
)


def highlight(code: str) -> Markup:
    """Code with a ``<span>`` around each string, comment, number, key and constant."""
    parts, end = [], 0
    for match in PARTS.finditer(code):
        parts.append(as_markup(code[end : match.start()]))
        parts.append(element('span', match.group(), class_=f'py-{match.lastgroup}'))
        end = match.end()
    return Markup(''.join([*parts, as_markup(code[end:])]))
