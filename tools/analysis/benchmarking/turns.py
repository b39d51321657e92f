"""Networks in turn, A B A B, so that what else the machine does affects them alike."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from statistics import median
from tempfile import NamedTemporaryFile
from typing import Any

from mmbixt.benchmarking.worker import Setting, serve


@dataclass
class Measured:
    """What was measured of a network at an image size.

    Attributes:
        name: of the network.
        size: height and width of the image.
        parameters: of the network.
        macs: multiply-adds of a forward pass, as torch counts them on the plain paths of the ops.
        memory: bytes of a forward and backward pass at its peak, on top of the model.
        peak: multiply-adds a second of a large matrix product in the same process.
        forward: seconds of forward passes, one for each round.
        both: seconds of forward and backward passes.
    """

    name: str
    size: int
    parameters: int
    macs: int
    memory: int
    peak: float
    forward: list[float] = field(default_factory=list)
    both: list[float] = field(default_factory=list)


class WorkerError(RuntimeError):
    """A network could not be built or run."""


class Worker:
    """A process that holds a network, and measures what it is asked for."""

    def __init__(self, name: str, size: int, setting: Setting) -> None:
        self.name = name
        context = get_context('spawn')
        self.connection, other = context.Pipe()
        # a file: a pipe that nobody reads would fill up and block
        self.printed = NamedTemporaryFile('r')  # noqa: SIM115 (it is closed with the process)
        arguments = (other, self.printed.name, name, size, setting)
        self.process = context.Process(target=serve, args=arguments)
        self.process.start()
        other.close()

    def ask(self, what: str) -> Any:
        """A figure, by the name of a method or an attribute of the worker's network."""
        try:
            self.connection.send(what)
            answer = self.connection.recv()
        except (EOFError, OSError) as error:  # killed, most likely for its memory
            self.process.join()
            raise WorkerError(
                f'{self.name}: its process ended ({self.process.exitcode}) without an answer; is '
                f'there enough memory? {self.printed.read()[-1000:]}'
            ) from error
        if isinstance(answer, Exception):
            raise WorkerError(f'{self.name}: {answer}')
        return answer

    def close(self) -> None:
        self.connection.close()
        self.process.join()
        self.printed.close()


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
            # memory first: nothing is left over from another pass
            figures = {what: worker.ask(what) for what in ('memory', 'parameters', 'macs', 'peak')}
            found.append(Measured(name, size, **figures))
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
