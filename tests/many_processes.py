"""The code of the processes of tests/test_tools/test_many_processes.py, imported by name."""

import json
import os
import runpy
import signal
import sys
from pathlib import Path

import torch.distributed as dist
from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from running import fresh_mmengine


@HOOKS.register_module(force=True)
class KillHook(Hook):
    """Kills the second process, as the system does when memory is full."""

    def after_train_iter(self, runner, **_) -> None:
        if runner.rank == 1 and runner.iter == 1:
            os.kill(os.getpid(), signal.SIGKILL)


def main(commands: Path) -> None:
    """Run the tools of a JSON list of [tool, arguments ...] in one process, to import once."""
    dist.init_process_group('gloo')
    for command in json.loads(commands.read_text()):
        sys.argv = command
        with fresh_mmengine():
            runpy.run_path(command[0], run_name='__main__')


if __name__ == '__main__':
    main(Path(sys.argv[1]))
