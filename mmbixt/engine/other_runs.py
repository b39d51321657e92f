"""A resumed run deletes no checkpoint of another run."""

from pathlib import Path

from mmengine.hooks import CheckpointHook, Hook
from mmengine.runner import Runner


class KeepOtherRunsHook(Hook):
    """Forget which checkpoints of another folder mmengine may delete.

    A resumed checkpoint names the best one of its run, and the numbers of the last ones: mmengine
    deletes files by these names for a better one, and files of these numbers in the new folder.
    """

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        info = (checkpoint.get('message_hub') or {}).get('runtime_info') or {}
        if not runner._resume:
            return
        hooks = [hook for hook in runner.hooks if isinstance(hook, CheckpointHook)]
        out_dirs = [Path(x.out_dir, Path(runner.work_dir).name) for x in hooks if x.out_dir]
        folders = [Path(folder).resolve() for folder in (*out_dirs, runner.work_dir)]
        # without a name it is the latest one of this folder
        is_here = not runner._load_from or Path(runner._load_from).parent.resolve() in folders
        if not is_here:
            info.pop('keep_ckpt_ids', None)
        for key in [key for key in info if key.startswith('best_ckpt') and info[key]]:
            best = Path(info[key])
            if best.parent.resolve() in folders:
                continue
            moved = [folder / best.name for folder in folders if (folder / best.name).is_file()]
            if is_here and moved:  # with the folder
                info[key] = str(moved[0])
            else:
                del info[key]
                info.pop(key.replace('best_ckpt', 'best_score'), None)
