"""Networks in turn, A B A B, so that what else the machine does hits them alike."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from tempfile import TemporaryFile
from typing import Any


@dataclass(frozen=True)
class Setting:
    """Under what all networks are measured."""

    batch: int = 1
    device: str = 'cpu'
    dtype: str = 'fp32'
    threads: int = 1
    compiled: bool = False


@dataclass
class Measured:
    """What was measured of a network at an image size.

    Attributes:
        name: of the network.
        size: height and width of the image.
        parameters: of the network.
        macs: multiply-adds of a forward pass, as torch counts them on the plain paths of the ops.
        memory: bytes of a forward and backward pass at its peak, on top of the model.
        forward: seconds of forward passes, one for each round.
        both: seconds of forward and backward passes.
        peak: multiply-adds a second of a large matrix product in the same process.
    """

    name: str
    size: int
    parameters: int
    macs: int
    memory: int
    peak: float
    forward: list[float] = field(default_factory=list)
    both: list[float] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class WorkerError(RuntimeError):
    """A network could not be built or run."""


class Worker:
    """A process that holds a network; see :mod:`mmbixt.benchmarking.worker`."""

    def __init__(self, name: str, size: int, setting: Setting) -> None:
        self.name = name
        command = [sys.executable, '-W', 'ignore', '-m', 'mmbixt.benchmarking.worker']
        # a file: a pipe that nobody reads would fill up and block
        self.messages = TemporaryFile('w+')  # noqa: SIM115 (it is closed with the process)
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.messages)
        self.process = subprocess.Popen(command, text=True, **pipes)
        task = dict(name=name, size=size, **asdict(setting))
        try:
            self.parameters = self._exchange(json.dumps(task))['parameters']
        except WorkerError:
            self.close()
            raise

    def ask(self, command: str) -> Any:
        return self._exchange(command)

    def _exchange(self, line: str) -> Any:
        try:
            print(line, file=self.process.stdin, flush=True)
            reply = self.process.stdout.readline()
        except BrokenPipeError:
            reply = ''
        if not reply:  # killed, most likely for its memory
            code = self.process.wait()
            self.messages.seek(0)
            raise WorkerError(
                f'{self.name}: its process ended ({code}) without an answer; is there enough '
                f'memory? {self.messages.read()[-1000:]}'
            )
        answer = json.loads(reply)
        if isinstance(answer, dict) and 'error' in answer:
            raise WorkerError(f'{self.name}: {answer["error"]}')
        return answer

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()
        self.messages.close()


def measure(
    names: Sequence[str], size: int, setting: Setting, rounds: int, step: Callable[[], Any]
) -> list[Measured]:
    """Measure networks at an image size, taking turns.

    Args:
        names: of the networks.
        size: height and width of the images.
        setting: batch, device and so on.
        rounds: turns of each network, after one that is not counted.
        step: called after each turn of a network.
    """
    workers, found = [], []
    try:
        for name in names:
            worker = Worker(name, size, setting)
            workers.append(worker)
            memory = worker.ask('memory')  # the first that it does
            counts = dict(macs=worker.ask('flops'), memory=memory, peak=worker.ask('peak'))
            found.append(Measured(name, size, worker.parameters, **counts))
            step()
        for number in range(rounds + 1):
            for worker, measured in zip(workers, found, strict=True):
                forward, both = worker.ask('forward'), worker.ask('both')
                if number:
                    measured.forward.append(forward)
                    measured.both.append(both)
                step()
    finally:
        for worker in workers:
            worker.close()
    return found


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Median over the rounds of how many times theirs takes ours."""
    return median(b / a for a, b in zip(ours, theirs, strict=True))


def spread(values: Sequence[float]) -> float:
    """Half of the distance between the quartiles, in medians."""
    ordered = sorted(values)
    low, high = ordered[len(ordered) // 4], ordered[(3 * len(ordered)) // 4]
    return (high - low) / 2 / median(ordered)
