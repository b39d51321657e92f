"""Settings that the weights of a checkpoint do not show, compared with those of its run."""

import ast
import inspect
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from mmengine.logging import print_log
from mmengine.registry import MODELS


# settings of the training alone
_OF_TRAINING = {'init_cfg', 'pretrained', 'with_cp', 'frozen_stages', 'norm_eval', 'norm_cfg'}
_OF_TRAINING |= {'drop_path_rate', 'drop_rate', 'attn_drop_rate', 'lam_init', '_scope_'}
_SECTIONS = ('model', 'data_preprocessor')
# of other parts, all that a prediction depends on
_OF_PREDICTION = {
    'model.data_preprocessor': {'mean', 'std', 'bgr_to_rgb', 'rgb_to_bgr', 'to_rgb'},
    'model.decode_head': {'align_corners', 'in_index', 'input_transform', 'threshold'},
}


def warn_of_changes(checkpoint: Mapping[str, Any], cfg: Mapping[str, Any]) -> None:
    """Log how network and images differ from those of the run that wrote a checkpoint.

    mmengine stores the config of the run, as text, in the checkpoint.
    """
    meta = checkpoint.get('meta')
    then = _model(read_config(meta.get('cfg') if isinstance(meta, Mapping) else None))
    now = _model({key: cfg.get(key) for key in _SECTIONS})
    changes = [
        change
        for part in ('backbone', 'neck', 'decode_head', 'data_preprocessor')
        for change in _changes(f'model.{part}', then.get(part), now.get(part))
    ]
    if changes:
        text = f'The checkpoint was trained with other settings: {"; ".join(changes)}.'
        print_log(text, 'current', logging.WARNING)


def _model(cfg: Mapping[str, Any]) -> dict[str, Any]:
    """The model of a config with its data preprocessor, which mmpretrain has beside it."""
    model, images = (plain(part) if isinstance(part, Mapping) else {} for part in cfg.values())
    return {'data_preprocessor': images, **model.get('module', model)}  # the module: of TTA


def read_config(text: Any) -> dict[str, Any]:
    """These sections of the text of a config, without running it."""
    found: dict[str, Any] = dict.fromkeys(_SECTIONS)
    try:
        for line in ast.parse(text).body if isinstance(text, str) else ():
            name = ast.unparse(line).partition(' = ')[0]
            found |= {name: _value(line.value)} if name in _SECTIONS else {}
        return found
    except (AttributeError, MemoryError, RecursionError, SyntaxError, TypeError, ValueError):
        return found  # more than values


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Call) and node.func.id == 'dict':
        named = {x.arg: _value(x.value) for x in node.keywords}
        return {key: x for part in node.args for key, x in _value(part).items()} | named
    if isinstance(node, ast.Dict):
        keys = map(ast.literal_eval, node.keys)
        return dict(zip(keys, map(_value, node.values), strict=True))
    if isinstance(node, ast.List | ast.Tuple):
        return [*map(_value, node.elts)]
    return ast.literal_eval(node)


def _defaults(kind: Any) -> dict[str, Any]:
    """The default values of the arguments of a class."""
    found = None
    if isinstance(kind, str):
        with MODELS.switch_scope_and_registry(None) as there:
            found = there.get(kind)
    bases = reversed(found.__mro__) if isinstance(found, type) else ()
    parameters = [x for base in bases for x in inspect.signature(base.__init__).parameters.values()]
    return {x.name: plain(x.default) for x in parameters if x.default is not x.empty}


def _changes(path: str, then: Any, now: Any) -> Iterator[str]:
    """The settings of a part, of the same type, that differ."""
    if isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        for i, (before, after) in enumerate(zip(then, now, strict=True)):
            if isinstance(before, dict):
                yield from _changes(f'{path}.{i}', before, after)
    if not (isinstance(then, dict) and isinstance(now, dict)):
        return
    if then.get('type') != now.get('type'):  # the weights show it
        return
    defaults = _defaults(now.get('type'))
    keys = (then.keys() | now.keys()) - _OF_TRAINING
    for key in sorted(keys & _OF_PREDICTION.get(path, keys)):
        before, after = (part.get(key, defaults.get(key)) for part in (then, now))
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _changes(f'{path}.{key}', before, after)
        elif before != after:
            yield f'{path}.{key} = {before!r:.60}, now {after!r:.60}'
