"""A resumed run deletes no checkpoint of another run."""

from pathlib import Path

from mmengine.hooks import CheckpointHook, Hook
from mmengine.runner import Runner


class KeepOtherRunsHook(Hook):
    """Forget a best checkpoint of another folder, which mmengine would delete for a better one.

    A resumed checkpoint names the best one of its run.
    """

    priority = 'LOWEST'  # after CheckpointHook has read the names

    def before_train(self, runner: Runner) -> None:
        for hook in runner.hooks:
            if isinstance(hook, CheckpointHook) and hook.save_best is not None:
                if len(hook.key_indicators) == 1:
                    hook.best_ckpt_path = self._here(hook.best_ckpt_path, hook.out_dir)
                elif not hook.published_keys:  # mmengine publishes all that it names
                    names = hook.best_ckpt_path_dict
                    names.update({key: self._here(names[key], hook.out_dir) for key in names})

    @staticmethod
    def _here(path: str | None, folder: str) -> str | None:
        """The path, or that of the same name in a folder that was moved, or None."""
        if not path or Path(path).parent.absolute() == Path(folder).absolute():
            return path
        moved = Path(folder, Path(path).name)
        return str(moved) if moved.is_file() and not Path(path).exists() else None
