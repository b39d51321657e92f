"""Checkpoints of other runs."""

from types import SimpleNamespace

from mmengine.hooks import CheckpointHook

from mmbixt.engine.other_runs import KeepOtherRunsHook


def test_a_run_keeps_the_best_checkpoint_of_another_folder(tmp_path):
    """Which a resumed checkpoint names; mmengine deletes it for a better one."""
    for folder in (tmp_path, tmp_path / 'other'):
        folder.mkdir(exist_ok=True)
        (folder / 'both.pth').touch()
    (tmp_path / 'moved.pth').touch()
    found = {'/other/best.pth': None, str(tmp_path / 'best.pth'): str(tmp_path / 'best.pth')}
    found |= {str(tmp_path / 'other/both.pth'): None}
    found |= {None: None, '/other/moved.pth': str(tmp_path / 'moved.pth')}
    for given, expected in found.items():
        one = CheckpointHook(save_best='mIoU', out_dir=str(tmp_path))
        one.key_indicators, one.best_ckpt_path = ['mIoU'], given
        two = CheckpointHook(save_best=['mIoU', 'aAcc'], out_dir=str(tmp_path))
        two.best_ckpt_path_dict = dict(mIoU=given, aAcc=None)
        KeepOtherRunsHook().before_train(SimpleNamespace(hooks=[one, two, CheckpointHook()]))
        assert one.best_ckpt_path == expected
        assert two.best_ckpt_path_dict == dict(mIoU=expected, aAcc=None)
