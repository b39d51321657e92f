"""``list_weights.py --check`` with files of the published layouts, from a local server."""

import sys
from dataclasses import replace

import list_weights
import pytest
from helpers import official_state
from test_checkpoints.layouts import saved, zipped

from mmbixt.checkpoints.sources import SOURCES

FILES = {  # layout, container
    'bixt://tiny-16': ('bixt_ti_l64_p16', 'state_dict'),
    'biformer://tiny': ('biformer_tiny', 'model'),
    'xcit://ade-semfpn-tiny12-p16': ('whole__sem_fpn_xcit_tiny_12_p16', 'state_dict'),
}


@pytest.fixture
def check(cache, server, monkeypatch, capsys):
    """Serves files in place of the published ones, and calls the tool; returns code and output."""

    def check(files, *arguments):
        for name, content in files.items():
            source = SOURCES[name]
            server.files[source.file] = zipped({'x.pth': content}) if source.is_zip else content
            monkeypatch.setitem(SOURCES, name, replace(source, url=server.url(source.file)))
        monkeypatch.setattr(sys, 'argv', ['list_weights.py', '--check', *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            list_weights.main()
        return int(end.value.code), capsys.readouterr().out

    return check


@pytest.mark.parametrize('name', FILES)
def test_published_layouts_load_and_run(check, tmp_path, name):
    layout, key = FILES[name]
    table = tmp_path / 'table.md'
    code, said = check({name: saved({key: official_state(layout)})}, name, '--table', table)
    assert code == 0, said
    shape = '(150, 224, 224)' if 'ade' in name else '(1, 1000)'
    assert f'loads; {shape} for one image' in said
    assert '1 of 1 files load' in said
    assert f'\n| {name} | ' in table.read_text()


def test_files_that_fail(check):
    """The others are checked nevertheless."""
    files = [name for name in SOURCES if name.startswith('swin://mm-')]
    code, said = check(dict.fromkeys(files, b'another file'), 'swin://mm-')
    assert (code, said.count('the sha256 of')) == (1, 3)
    assert '0 of 3 files load' in said
