"""Progress in a log and on a terminal."""

import sys
from io import StringIO

from mmbixt.progress import progress


def written(monkeypatch, is_terminal):
    """What four steps of three kinds of loops write."""
    file = StringIO()
    file.isatty = lambda: is_terminal
    monkeypatch.setattr(sys, 'stderr', file)
    assert list(progress('abcd')) == list('abcd')
    with progress(total=4) as bar:
        bar.update(4)
    for letter in progress(iter('abcd'), 4):
        if letter == 'c':
            break
    return file.getvalue()


def test_plain_lines_in_a_log_and_a_bar_on_a_terminal(monkeypatch):
    text = written(monkeypatch, is_terminal=False)
    assert text.replace('\n', '').isprintable()  # no carriage return, no control sequence
    counts = [line.partition(' after ')[0] for line in text.splitlines()]
    assert counts == ['0 of 4', '4 of 4'] * 2 + ['0 of 4', '2 of 4']
    text = written(monkeypatch, is_terminal=True)
    assert '\r' in text
    assert '0/4 [' in text
