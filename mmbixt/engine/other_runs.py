"""A resumed run deletes no checkpoint of another run."""

from pathlib import Path

from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmbixt.registry import HOOKS


@HOOKS.register_module()
class KeepOtherRunsHook(Hook):
    """Remove names of files in another folder from a checkpoint that is resumed.

    It names the best checkpoint of its run and the numbers of the last ones: mmengine would delete
    that file when a better one follows, and files with these numbers in the new folder.
    """

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        hub, folder = checkpoint.get('message_hub') or {}, Path(runner.work_dir).resolve()
        info, file = hub.get('runtime_info', {}), runner.cfg.get('load_from')
        # without a name, mmengine resumes the latest checkpoint of this folder
        is_same_folder = not file or Path(file).resolve().parent == folder
        for key in [key for key in info if key.startswith(('keep_ckpt_ids', 'best_'))]:
            best = folder / Path(str(info[key])).name  # the folder may have been moved
            if is_same_folder and key.startswith('best_ckpt') and best.is_file():
                info[key] = str(best)
            elif not is_same_folder or key.startswith('best_ckpt'):
                del info[key]
                hub['resumed_keys'].pop(key, None)
