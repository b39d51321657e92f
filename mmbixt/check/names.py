"""Types and arguments that are spelt almost like an existing one."""

import inspect
import re
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pathlib import Path
from traceback import extract_tb
from typing import Any

from mmengine.registry import MODELS, Registry
from mmengine.runner import Runner

from mmbixt.config import within
from mmbixt.datasets.availability import parts_of
from mmbixt.frameworks import UNUSABLE
from mmbixt.registry import FRAMEWORKS, SCOPE

_ROOT = 'mmengine'
DELETE = 'If it is inherited, _delete_=True in this part removes all that is inherited there.'
_SECTIONS = inspect.signature(Runner).parameters.keys() - {'cfg'}
_ARGUMENT = re.compile(r"(\w+)\.__init__\(\) got an unexpected keyword argument '(\w+)'")


def scope_problems(cfg: Mapping[str, Any]) -> Iterator[str]:
    """A message if no package is given that has the type of the model."""
    scope, kind = cfg.get('default_scope'), within(cfg, 'model').get('type')
    if not isinstance(kind, str) or '.' in kind:
        return
    if registered(scope) or scope in MODELS.children or kind in registered(_ROOT):
        return
    yield (
        f'default_scope = {scope!r}, which has no {kind}. Set it to the package of the model: '
        "'mmseg', 'mmdet' or 'mmpretrain'."
    )


def misspelt_sections(cfg: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each name that is like that of a section of the runner, and this section.

    It has the same letters, or all but one; other names are of variables.
    """
    letters = {''.join(sorted(section)): section for section in _SECTIONS}
    is_free = 'seed' not in within(cfg, 'randomness')
    if is_free and isinstance(cfg.get('seed'), int):  # that of mmseg 0.x
        yield 'seed', 'randomness'
    for name in sorted(cfg.keys() - _SECTIONS):
        similar = get_close_matches(name, _SECTIONS, n=1, cutoff=0.92)
        if right := next(iter(similar), letters.get(''.join(sorted(name)))):
            yield name, right


def correct_types(cfg: Mapping[str, Any], *sections: str) -> Iterator[str]:
    """Replace each misspelt type, in place, by the similar one that exists, and report it.

    For sections that cannot be built: in others, types may be in no registry (FPG's 'conv').
    """
    for section in sections:
        yield from _correct(cfg.get(section), section, (cfg.get('default_scope'),))


def correct_classes(cfg: Mapping[str, Any], splits: tuple[str, ...]) -> Iterator[str]:
    """Replace classes that are a string, in place, by the one name, and report it.

    mmengine reads a string as the name of a file, and without this file takes its letters.
    """
    for path, dataset in (part for split in splits for part in parts_of(cfg, split)):
        metainfo = dataset.get('metainfo')
        name = metainfo.get('classes') if isinstance(metainfo, Mapping) else None
        if isinstance(name, str) and not Path(name).is_file():
            yield (
                f'{path}.metainfo.classes = {name!r} is a string and no file of names: its '
                f'letters would be the classes. One class needs a comma: ({name!r},).'
            )
            metainfo['classes'] = (name,)


def _correct(node: Any, path: str, scopes: tuple[str | None, ...]) -> Iterator[str]:
    if isinstance(node, list | tuple):
        for i, part in enumerate(node):
            yield from _correct(part, f'{path}.{i}', scopes)
    if not isinstance(node, dict):
        return
    if '_scope_' in node:  # the config of another package was inherited
        scopes = (node['_scope_'], *scopes)
    kind = node.get('type')
    others = FRAMEWORKS if path.startswith('model') else ()  # whose layers can be used everywhere
    if isinstance(kind, str) and (right := near_type(kind, scopes, others)):
        yield f'{path}.type = {kind!r} is in no registry.{meant(right)}'
        node['type'] = right
    for key, part in node.items():
        yield from _correct(part, f'{path}.{key}', scopes)


def near_type(
    kind: str, scopes: tuple[str | None, ...], others: tuple[str, ...] = ()
) -> str | None:
    """The existing type that is similar to an unknown one, or has its name in other packages."""
    given, _, name = kind.rpartition('.')
    if given:
        there = {given: registered(given)}
    else:
        there = {'': {k: v for scope in (*scopes, _ROOT) for k, v in registered(scope).items()}}
    if name in there[given] or not there[given]:  # for example torch.nn.ReLU
        return None
    there[SCOPE] = registered(SCOPE)
    for prefix, classes in there.items():
        if right := near(name, classes):
            return f'{prefix}.{right}' if prefix else right
    return next((f'{other}.{name}' for other in others if name in registered(other)), None)


@cache
def registered(scope: str | None) -> dict[str, Any]:
    """All classes in the registries of a package, by name; none if there is no such package."""
    try:
        module = import_module(f'{scope}.registry')
    except UNUSABLE:
        return {}
    registries = [x for x in vars(module).values() if isinstance(x, Registry) and x.scope == scope]
    for registry in registries:  # importing one may fill others
        registry.import_from_location()
    return {name: kind for registry in registries for name, kind in registry.module_dict.items()}


def near(name: str, names: Collection[str]) -> str | None:
    """The name that differs only in case, or in one or two letters."""
    lower = {other.lower(): other for other in names}
    found = get_close_matches(name.lower(), lower, n=1, cutoff=0.8)
    return lower[found[0]] if found else None


def meant(right: str | None) -> str:
    return f' Is {right!r} meant?' if right else ''


def valid(name: str, known: Collection[str]) -> str:
    """Which argument is meant, or else which ones there are."""
    if name == '_delete_':  # mmengine leaves it where it finds nothing to remove
        return ' Nothing is inherited here (a list replaces the inherited one): leave it out.'
    return meant(near(name, known)) or f' It has {", ".join(sorted(known))}. {DELETE}'


def explain(error: Exception, scope: str | None) -> str:
    """The message of an error; for an unknown argument, also a similar one or all valid ones."""
    text = str(error.args[0] if isinstance(error, KeyError) and error.args else error)
    text = text.partition('. Please check')[0]
    if not text:  # an assertion
        text = f'{type(error).__name__}: {extract_tb(error.__traceback__)[-1].line}'
    elif isinstance(error, KeyError) and text.isidentifier():
        text = f'KeyError: {text!r}'
    unknown = _ARGUMENT.search(text)
    for place in (SCOPE, scope, _ROOT, *FRAMEWORKS) if unknown else ():
        found = (x for x in registered(place).values() if isinstance(x, type))
        bases = {base.__name__: base for kind in found for base in kind.__mro__}
        if kind := bases.get(unknown[1]):
            return f'{text}.{valid(unknown[2], inspect.signature(kind).parameters)}'
    return text
