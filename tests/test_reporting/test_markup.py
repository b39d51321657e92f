from test_reporting.runs import HOSTILE, QUOTED, Reader

from mmbixt.reporting.markup import Markup, element, join
from mmbixt.reporting.python_code import highlight


def test_text_is_escaped_and_markup_is_not():
    inner = element('b', HOSTILE)
    outer = element('p', inner, ' & ', 3, None)
    assert outer == '<p><b>&lt;script&gt;window.broken = 1&lt;/script&gt;</b> &amp; 3</p>'
    assert isinstance(outer, Markup)
    assert join('<', Markup('<br>')) == '&lt;<br>'


def test_attributes():
    made = element('p', class_='a', data_of_it=QUOTED, hidden=True, open=False, id=None)
    [(name, attributes)] = Reader(made).elements
    assert name == 'p'
    assert attributes == {'class': 'a', 'data-of-it': QUOTED, 'hidden': None}


def test_code_keeps_its_text():
    code = f"a = dict(b='<&\\'', c=-1.5e-3)  # {HOSTILE}\nd.e2 = None, \"it's\", True\n"
    reader = Reader(highlight(code))
    assert reader.text == code
    kinds = [about['class'] for _, about in reader.elements]
    assert kinds == [
        *('py-key', 'py-key', 'py-string', 'py-key', 'py-number', 'py-comment'),
        *('py-key', 'py-word', 'py-string', 'py-word'),
    ]
