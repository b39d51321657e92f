"""Weights of one part of a model in the file of a larger one: the beginning of their names."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from torch import Tensor

from mmbixt.checkpoints.state_dict import Differences

State = Mapping[str, Tensor]


def candidates(state: State) -> Iterator[str]:
    """Beginnings such as 'model.backbone.', common to a quarter of the names, short ones first."""
    parts = (key.split('.')[:-1][:4] for key in state)
    counts = Counter('.'.join(p[: n + 1]) + '.' for p in parts for n in range(len(p)))
    yield from sorted((p for p, n in counts.items() if 4 * n >= len(state)), key=len)


def without(prefix: str, state: State) -> dict[str, Tensor]:
    """The weights whose names begin with a prefix, by the rest of their names."""
    return {k.removeprefix(prefix): x for k, x in state.items() if k.startswith(prefix)}


def replace(state: dict[str, Tensor], prefix: str, weights: State) -> None:
    """Replace, in place, the weights whose names begin with a prefix."""
    for key in [key for key in state if key.startswith(prefix)]:
        del state[key]
    state.update((prefix + key, value) for key, value in weights.items())


def closest(state: State, compare: Callable[[State], Differences]) -> list[str]:
    """The prefixes with which the most weights of a model, more than half, are in a larger file.

    An empty list if there are none, or if as many are found without a prefix.
    """

    def found(prefix: str) -> int:
        differences = compare(without(prefix, state))
        count = differences.number - len(differences.missing)
        return count * (2 * count > differences.number)

    counts = {prefix: found(prefix) for prefix in ('', *candidates(state))}
    most = max(counts.values())
    return [] if counts[''] == most else [prefix for prefix in counts if counts[prefix] == most]


def advise(file: str | None, prefixes: list[str]) -> str:
    """The setting of a config that loads the weights with a prefix, '' for all weights."""
    first, *others = prefixes
    setting = f"type='Pretrained', checkpoint={repr(file) if file else '...'}"
    setting += f', prefix={first!r}' if first else ''
    others = ''.join(f', or prefix={prefix!r}' for prefix in others)
    return f'backbone=dict(init_cfg=dict({setting})){others}'
