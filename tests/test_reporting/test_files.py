import pytest

from mmbixt.reporting.files import replacing


def test_file_appears_when_it_is_whole(tmp_path):
    file = tmp_path / 'new/report.html'
    with replacing(file) as part:
        part.write_text('all of it')
        assert not file.exists()
    assert file.read_text() == 'all of it'
    assert list(file.parent.iterdir()) == [file]


def test_full_disk_leaves_the_old_one(tmp_path):
    file = tmp_path / 'report.html'
    file.write_text('old')

    def write_until_full():
        with replacing(file) as part:
            part.write_text('half of')
            raise OSError(28, 'No space left on device')

    with pytest.raises(OSError, match='No space'):
        write_until_full()
    assert file.read_text() == 'old'
    assert list(tmp_path.iterdir()) == [file]
