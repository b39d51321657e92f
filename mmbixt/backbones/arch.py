"""The arguments of the backbones: architectures, numbers of layers, choices."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any


def check_choice(name: str, value: Any, choices: Collection) -> None:
    # the type too: 16.0 equals 16, but is not a stride
    if not any(value == choice and type(value) is type(choice) for choice in choices):
        valid = ', '.join(repr(choice) for choice in choices)
        raise ValueError(f'{name}={value!r} is not one of {valid}.')


def resolve_arch(
    model: str,
    arch: str | Mapping,
    archs: Mapping[str, Mapping],
    defaults: Mapping[str, Any],
    **overrides: Any,
) -> dict[str, Any]:
    """A complete description of an architecture from its name in ``archs`` or a dict.

    A dict may leave out the keys of ``defaults``. ``overrides`` replace entries, or are added,
    unless they are None. All sequences have one entry for each stage.
    """
    if not isinstance(arch, Mapping):
        check_choice(f'{model}: arch', arch, archs)
        arch = archs[arch]
    required = [key for key in next(iter(archs.values())) if key not in defaults]
    missing = [key for key in required if key not in arch]
    unknown = [key for key in arch if key not in (*required, *defaults)]
    if missing or unknown:
        raise ValueError(
            f'{model}: an arch dict needs the keys {required} and may have {list(defaults)}; '
            f'missing: {missing}, unknown: {unknown}.'
        )
    given = {key: value for key, value in overrides.items() if value is not None}
    complete = {**defaults, **arch, **given}
    stages = {key: x for key, x in complete.items() if isinstance(x, tuple | list)}
    if len({len(numbers) for numbers in stages.values()}) > 1:
        given = ', '.join(f'{key}={numbers!r}' for key, numbers in stages.items())
        raise ValueError(f'{model}: {given} must have one number for each stage.')
    return complete


def resolve_out_indices(out_indices: int | Sequence[int] | None, depth: int) -> tuple[int, ...]:
    """Layers from 0, ascending; by default after a third, a half, two thirds and all of them.

    In a network of less than five layers some of these are equal: there are fewer feature maps.
    """
    if out_indices is None:
        layers = [-(-depth * numerator // 6) - 1 for numerator in (2, 3, 4, 6)]
        return tuple(sorted(set(layers)))
    given = (out_indices,) if isinstance(out_indices, int) else tuple(out_indices)
    indices = tuple(i + depth if i < 0 else i for i in given)
    if not indices or list(indices) != sorted({*indices} & {*range(depth)}):
        raise ValueError(f'out_indices={given} must be ascending, from 0 to {depth - 1}.')
    return indices
