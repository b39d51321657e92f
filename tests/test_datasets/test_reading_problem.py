import pytest
from mmcv.transforms import LoadImageFromFile
from PIL import Image

from mmbixt.datasets.problems import reading_problem


def problem(path, **options):
    with pytest.raises(Exception) as info:  # noqa: PT011 (any that mmcv raises)
        LoadImageFromFile(**options).transform(dict(img_path=str(path)))
    return reading_problem(str(path), info.value)


def test_why_an_image_cannot_be_read(tmp_path, monkeypatch):
    whole, cut = tmp_path / 'whole.tif', tmp_path / 'cut.png'
    Image.new('RGB', (9, 9)).save(whole)
    Image.new('RGB', (99, 99)).save(cut)
    cut.write_bytes(cut.read_bytes()[:60])
    assert 'cut.png: damaged, or not an image (' in problem(cut)
    assert 'failed to load' not in problem(cut)  # PIL says more
    # a program that reads such files is missing
    monkeypatch.setattr('mmcv.image.io.tifffile', None)
    assert 'AttributeError' in problem(whole, imdecode_backend='tifffile')
    text = reading_problem('http://host/a.png', OSError('Connection refused'))
    assert text == 'http://host/a.png cannot be read: OSError: Connection refused'
