"""Measure networks alternately, A B A B, so that other load affects all of them equally."""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import get_context
from statistics import median
from typing import Any

from mmbixt.benchmarking.worker import Setting, get


@dataclass
class Measured:
    """Measurements of a :class:`mmbixt.benchmarking.worker.Network`, with the names of its methods.

    ``forward`` and ``both`` have the seconds of each round.
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
    """A process with a network, which measures it on request."""

    def __init__(self, *about: Any) -> None:
        self.about = about
        self.pool = ProcessPoolExecutor(1, get_context('spawn'))

    def get(self, what: str) -> Any:
        """The value of an attribute, or the result of a method, of the worker's network."""
        try:
            return self.pool.submit(get, what, *self.about).result()
        except BrokenProcessPool as error:  # killed, most likely for its memory
            text = 'its process ended without a result; is there enough memory?'
            raise WorkerError(f'{self.about[0]}: {text}') from error
        except RuntimeError as error:
            raise WorkerError(f'{self.about[0]}: {error}') from error


def measure(
    names: Sequence[str], size: int, setting: Setting, rounds: int, step: Callable[[], Any]
) -> list[Measured]:
    """Measure networks alternately at an image size, ``rounds`` times after one for warm-up.

    ``step`` is called after each measurement of a network.
    """
    workers, found = [], []
    try:
        for name in names:
            worker = Worker(name, size, setting)
            workers.append(worker)
            # memory first, because an earlier pass would leave allocated memory
            figures = {what: worker.get(what) for what in ('memory', 'parameters', 'macs', 'peak')}
            found.append(Measured(name, size, **figures))
            step()
        for number in range(rounds + 1):
            for worker, measured in zip(workers, found, strict=True):
                forward, both = worker.get('forward'), worker.get('both')
                if number:
                    measured.forward.append(forward)
                    measured.both.append(both)
                step()
    finally:
        for worker in workers:
            worker.pool.shutdown()
    return found


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Median over the rounds of theirs / ours."""
    return median(b / a for a, b in zip(ours, theirs, strict=True))


def spread(values: Sequence[float]) -> float:
    """Half of the interquartile range, divided by the median."""
    ordered = sorted(values)
    low, high = ordered[len(ordered) // 4], ordered[(3 * len(ordered)) // 4]
    return (high - low) / 2 / median(ordered)
