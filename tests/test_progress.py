"""Progress in a log and on a terminal."""

import sys
from io import StringIO

import pytest

from mmbixt.progress import progress


@pytest.mark.parametrize('is_terminal', [False, True])
def test_plain_lines_in_a_log_and_a_bar_on_a_terminal(is_terminal, monkeypatch):
    file = StringIO()
    file.isatty = lambda: is_terminal
    monkeypatch.setattr(sys, 'stderr', file)
    assert list(progress('abcd')) == list('abcd')
    if is_terminal:
        assert '\r' in file.getvalue()
    else:
        lines = file.getvalue().splitlines()
        assert [line.partition(' after ')[0] for line in lines] == ['0 of 4', '4 of 4']
