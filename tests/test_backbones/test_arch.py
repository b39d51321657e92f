import pytest

from mmbixt.backbones.arch import check_choice, resolve_arch, resolve_out_indices

ARCHS = {'a': dict(width=8, depth=4), 'b': dict(width=16, depth=2, extra=1)}
DEFAULTS = dict(extra=0)


def test_name_and_dict_and_override():
    assert resolve_arch('M', 'b', ARCHS, DEFAULTS) == dict(width=16, depth=2, extra=1)
    assert resolve_arch('M', 'a', ARCHS, DEFAULTS, depth=3)['depth'] == 3
    assert resolve_arch('M', 'a', ARCHS, DEFAULTS, depth=None)['depth'] == 4
    assert resolve_arch('M', dict(width=1, depth=1), ARCHS, DEFAULTS)['extra'] == 0


def test_wrong_name_lists_the_valid_ones():
    with pytest.raises(ValueError, match=r"M: arch='c' is not one of 'a', 'b'"):
        resolve_arch('M', 'c', ARCHS, DEFAULTS)


def test_wrong_keys_are_named():
    with pytest.raises(ValueError, match=r"missing: \['depth'\], unknown: \['heigth'\]"):
        resolve_arch('M', dict(width=1, heigth=2), ARCHS, DEFAULTS)


def test_choice():
    with pytest.raises(ValueError, match='stride=5 is not one of 16, 8'):
        check_choice('stride', 5, (16, 8))


@pytest.mark.parametrize(
    ('given', 'depth', 'expected'),
    [
        (None, 12, (3, 5, 7, 11)),
        (None, 24, (7, 11, 15, 23)),
        (None, 11, (3, 5, 7, 10)),
        (None, 1, (0,)),
        ((-1,), 12, (11,)),
        (5, 12, (5,)),
        ([2, 5], 6, (2, 5)),
    ],
)
def test_out_indices(given, depth, expected):
    assert resolve_out_indices(given, depth) == expected


@pytest.mark.parametrize('wrong', [(12,), (-13,), (), (5, 3), (3, 3)])
def test_wrong_out_indices(wrong):
    with pytest.raises(ValueError, match='out_indices='):
        resolve_out_indices(wrong, 12)
