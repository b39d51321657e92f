"""A resumed run deletes no checkpoint of another run."""

from pathlib import Path

from mmengine.hooks import CheckpointHook, Hook
from mmengine.runner import Runner


class KeepOtherRunsHook(Hook):
    """Forget which checkpoints of another folder mmengine may delete.

    A resumed checkpoint names the best one of its run, and the numbers of the last ones: mmengine
    deletes files by these names for a better one, and files of these numbers in the new folder.
    """

    def after_train(self, runner: Runner) -> None:
        """Of several best checkpoints, let mmengine publish those that this run has written."""
        for hook in runner.hooks:
            if paths := getattr(hook, 'best_ckpt_path_dict', None):
                hook.best_ckpt_path_dict = {key: path for key, path in paths.items() if path}

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        hub = checkpoint.get('message_hub') or {}
        info = hub.get('runtime_info') or {}
        if not runner._resume:
            return
        before = {*info}
        hooks = [hook for hook in runner.hooks if isinstance(hook, CheckpointHook)]
        out_dirs = [Path(x.out_dir, Path(runner.work_dir).name) for x in hooks if x.out_dir]
        folders = [Path(folder).resolve() for folder in (*out_dirs, runner.work_dir)]
        # without a name it is the latest one of this folder
        is_here = not runner._load_from or Path(runner._load_from).parent.resolve() in folders
        if not is_here:
            info.pop('keep_ckpt_ids', None)
        for key in [key for key in info if key.startswith('best_ckpt') and info[key]]:
            best = Path(info[key])
            is_of_score = key != 'best_ckpt' or self._may_be(hooks, best.name)
            if best.parent.resolve() in folders and is_of_score:
                continue
            moved = [folder / best.name for folder in folders if (folder / best.name).is_file()]
            if is_here and moved and is_of_score:  # with the folder
                info[key] = str(moved[0])
            else:
                del info[key]
                info.pop(key.replace('best_ckpt', 'best_score'), None)
        for key in before - info.keys():
            hub.get('resumed_keys', {}).pop(key, None)

    @staticmethod
    def _may_be(hooks: list[CheckpointHook], name: str) -> bool:
        """Whether a best checkpoint is of the score that is watched now."""
        given = [hook.save_best or [] for hook in hooks]
        scores = [score for x in given for score in ([x] if isinstance(x, str) else x)]
        known = [score.replace('/', '_') for score in scores if score != 'auto']
        return not known or name.startswith(tuple(f'best_{score}_' for score in known))
