"""HTML that cannot be broken by what is put into it."""

from html import escape

VOID = {'img', 'input', 'line', 'circle', 'rect', 'path', 'polyline'}  # without content here


class Markup(str):
    """HTML as it is; any other text is escaped before it becomes part of a page."""


def join(*parts: object) -> Markup:
    """Parts one after the other; None is nothing."""
    return Markup(''.join(map(as_markup, parts)))


def as_markup(part: object) -> Markup:
    if part is None:
        return Markup()
    return part if isinstance(part, Markup) else Markup(escape(str(part)))


def element(name: str, *children: object, **attributes: object) -> Markup:
    """An element of HTML or SVG.

    Args:
        name: of the element.
        children: text, which is escaped, or markup.
        attributes: ``class_`` is class, ``data_x`` is data-x; True is an attribute without a
            value, None and False are none.
    """
    texts = []
    for key, value in attributes.items():
        key = key.rstrip('_').replace('_', '-')
        if value is True:
            texts.append(f' {key}')
        elif value is not None and value is not False:
            texts.append(f' {key}="{escape(str(value))}"')
    head = f'<{name}{"".join(texts)}'
    if name in VOID and not children:
        return Markup(f'{head}/>')
    return Markup(f'{head}>{join(*children)}</{name}>')
