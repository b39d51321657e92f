"""``compile=True`` in a config: mmengine compiles the model, in training and in validation."""

import pytest
from helpers import CONFIGS, only_in_zoo
from running import NO_WORKERS, TWO_STEPS, write_few_scenes

pytestmark = [only_in_zoo, pytest.mark.usefixtures('fresh_compiler')]
SHORT = [
    *TWO_STEPS,
    *NO_WORKERS,
    'default_hooks.checkpoint.save_best=None',
    'train_dataloader.batch_size=2',
    'val_dataloader.dataset.indices=2',
    # the compiler's code takes minutes; test_compiled.py has it
    'compile.backend=aot_eager',
]
FAMILIES = [
    'bixt/semfpn_bixt_ti_ade20k.py',
    'xcit/semfpn_xcit_t12_p16_ade20k.py',
    'biformer/semfpn_biformer_t_ade20k.py',
    'bisa_swin/semfpn_bisa_swin_t_ade20k.py',
]


@pytest.mark.parametrize('config', FAMILIES)
def test_trains_and_evaluates(config, within, tmp_path):
    write_few_scenes(tmp_path / 'data/sample')
    options = ('--sample', '--cfg-options', *SHORT)
    said = within('train.py', CONFIGS / config, *options, cwd=tmp_path).said
    assert 'Model has been "compiled"' in said
    assert 'mIoU' in said
