import os
import subprocess
import sys

import pytest
import torch

from mmbixt.ops import bidirectional_attention, ops_path, use_ops


def test_use_ops_is_undone_after_an_error():
    def fail():
        with use_ops('reference'):
            assert ops_path() == 'reference'
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert ops_path() == 'auto'


def test_unknown_path_is_refused_with_the_valid_ones():
    with pytest.raises(ValueError, match=r"'fast' is not a path.*reference"), use_ops('fast'):
        raise AssertionError('not reached')


def test_path_that_an_op_lacks_says_which_it_has():
    x = torch.randn(1, 1, 2, 4)
    with use_ops('triton'), pytest.raises(ValueError, match='torch, reference'):
        bidirectional_attention(x, x, x, x, 1.0)


def test_environment_variable_sets_the_path():
    code = 'from mmbixt.ops import ops_path; print(ops_path())'
    environment = os.environ | {'MMBIXT_OPS': 'reference'}
    output = subprocess.check_output([sys.executable, '-c', code], env=environment, text=True)
    assert output.strip() == 'reference'
