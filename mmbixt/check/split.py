"""What the parts of the check know about the data set of a split."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Split:
    """What is known about the data set of a split."""

    name: str  # 'train', 'val' or 'test'
    kind: str  # the type of the data set
    classes: tuple[str, ...] = ()  # their names; none if it does not say
    epoch: int | None = None  # iterations of an epoch; None if not known
    unknown: tuple[str, ...] = ()  # classes in place of those of its file
    reduces: bool | None = None  # mmseg's reduce_zero_label; None if it has none, or several
    first: Any = None  # the first image after the pipeline; None if it was not read
    is_missing: bool = False  # whether files were not found, of which `check_datasets` tells
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
