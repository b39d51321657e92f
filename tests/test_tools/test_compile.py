"""``compile=True`` in a config: mmengine compiles the model, in training and in validation."""

import pytest
from helpers import CONFIGS, only_in_zoo
from running import NO_WORKERS, TWO_STEPS, write_few_scenes


@only_in_zoo
@pytest.mark.usefixtures('fresh_compiler')
def test_trains_and_evaluates(within, tmp_path):
    write_few_scenes(tmp_path / 'data/sample')
    config = CONFIGS / 'bixt/semfpn_bixt_ti_ade20k.py'
    options = [*TWO_STEPS, *NO_WORKERS, 'default_hooks.checkpoint.save_best=None']
    options += ['train_dataloader.batch_size=2', 'val_dataloader.dataset.indices=2']
    options += ['compile.backend=aot_eager']  # inductor, which takes minutes, is in test_compiled
    done = within('train.py', config, '--sample', '--cfg-options', *options, cwd=tmp_path)
    assert 'Model has been "compiled"' in done.said
    assert 'mIoU' in done.said
