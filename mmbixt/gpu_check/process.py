"""Run the checks in a separate process, and continue in a new process if it ends.

After an illegal access to memory a process cannot use the GPU any more, some errors end it, and a
check that hangs must be stopped: then a new process continues with the next line.
"""

import os
import signal
import time
import warnings
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from tempfile import NamedTemporaryFile

import torch

from mmbixt.gpu_check.lines import all_lines, failed, not_run, result_of

PATIENCE = 300.0  # seconds for one line


def run_lines(
    device: str | None, batch: int, minutes: float, report: Callable[[int, dict], None]
) -> None:
    """Run all lines within the time limit, and report the result of each by its number."""
    lines, end, number = all_lines(device, batch), time.monotonic() + 60 * minutes, 0
    while number < len(lines) and time.monotonic() < end:
        for result in _results_from(number, device, batch, end):
            report(number, result)
            number += 1
    for i in range(number, len(lines)):
        report(i, not_run('no time left'))


def _results_from(first: int, device: str | None, batch: int, end: float):
    """The results of one process, from line ``first`` on, until it ends."""
    context = get_context('spawn')
    connection, other = context.Pipe()
    with NamedTemporaryFile('r') as printed:
        process = context.Process(target=_serve, args=(other, printed.name, first, device, batch))
        process.start()
        other.close()
        try:
            while True:
                left = end - time.monotonic()
                if not connection.poll(max(0.0, min(left, PATIENCE))):
                    late = f'no result after {PATIENCE:.0f} s'
                    yield not_run('no time left') if left <= PATIENCE else failed(late)
                    return
                result = connection.recv()
                if result is None:
                    return
                yield result
        except EOFError:
            process.join()
            yield failed(f'its process ended ({process.exitcode}): {printed.read()[-300:]}')
        finally:
            _end(process)
            connection.close()


def _end(process) -> None:
    """Kill a process and those that it has started, such as compilers."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:  # it has ended, or has not made its group yet
        process.kill()
    process.join()


def _serve(connection: Connection, output: str, first: int, device: str | None, batch: int) -> None:
    os.setpgid(0, 0)
    with open(output, 'w') as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    warnings.simplefilter('ignore')
    for line in all_lines(device, batch)[first:]:
        connection.send(result_of(line))
        if device is not None and not _is_usable():
            break
    connection.send(None)


def _is_usable() -> bool:
    """Whether the GPU still answers this process."""
    try:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    except Exception:
        return False
    return True
