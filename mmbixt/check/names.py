"""The similar name for a misspelt type or argument, when the frameworks build a part."""

import inspect
import re
import traceback
from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from mmengine import registry as root
from mmengine.registry import Registry

_TYPE = re.compile(r'^([\w.]+) is not in the \w+::([\w ]+) registry')
_ARGUMENT = re.compile(r"(\w+)\.__init__\(\) got an unexpected keyword argument '(\w+)'")


def suggest(error: Exception) -> str | None:
    """The message of an error about an unknown name with a similar name; None for other errors."""
    text = str(error.args[0]) if error.args else ''
    if isinstance(error, KeyError) and (match := _TYPE.search(text)):
        kind, registry = match.groups()
        others = {*_types(registry)} - {kind}  # another scope may have a type of this name
        same = next((x for x in sorted(others) if x.endswith(f'.{kind}')), None)
        return f'There is no {registry} {kind!r}.{_did_you_mean(same or near(kind, others))}'
    if isinstance(error, TypeError) and (match := _ARGUMENT.search(text)):
        owner, argument = match.groups()
        hint = _did_you_mean(near(argument, _arguments(owner)))
        return f'{owner} has no argument {argument!r}.{hint}'
    # numpy's, where mmengine's BaseDataset joins the list of its images
    calls = {frame.name for frame in traceback.extract_tb(error.__traceback__)}
    if 'need at least one array to concatenate' in text and 'full_init' in calls:
        return 'A data set has no images: look at its data_prefix, ann_file and suffixes.'
    return None


def near(name: str, names: Iterable[str]) -> str | None:
    """The name that differs only in case, or in a few letters."""
    lower = {other.lower(): other for other in names}
    matches = get_close_matches(name.lower(), lower, n=1, cutoff=0.8)
    return lower[matches[0]] if matches else None


def _did_you_mean(right: str | None) -> str:
    return f' Did you mean {right!r}?' if right else ''


def _registries() -> Iterator[Registry]:
    for value in vars(root).values():
        if isinstance(value, Registry):
            yield value
            yield from value.children.values()


def _types(name: str) -> Iterator[str]:
    """All types in registries of this name, such as 'model', with and without their scope."""
    for registry in _registries():
        if registry.name == name:
            yield from registry.module_dict
            yield from (f'{registry.scope}.{kind}' for kind in registry.module_dict)


def _arguments(owner: str) -> Iterator[str]:
    """The arguments of registered classes that are, or inherit from, a class of this name."""
    classes = {kind for registry in _registries() for kind in registry.module_dict.values()}
    for kind in (kind for kind in classes if isinstance(kind, type)):
        if owner in (base.__name__ for base in kind.__mro__):
            for base in kind.__mro__[:-1]:
                parameters = inspect.signature(base.__init__).parameters.values()
                yield from (x.name for x in parameters if x.kind is x.POSITIONAL_OR_KEYWORD)
