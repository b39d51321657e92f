"""Colours for label maps of generated scenes; ADE20K has many similar greens."""

from collections.abc import Sequence

_COLOURS = {
    'building': (200, 90, 80),
    'sky': (120, 190, 255),
    'tree': (20, 120, 40),
    'road': (110, 110, 120),
    'grass': (130, 210, 60),
    'sidewalk': (220, 180, 230),
    'person': (230, 25, 75),
    'earth': (150, 95, 45),
    'mountain': (110, 90, 160),
    'car': (0, 70, 200),
    'water': (0, 150, 170),
    'sand': (250, 225, 140),
    'boat': (120, 0, 120),
    'animal': (255, 220, 0),
}


def sample_palette(classes: Sequence[str], palette: Sequence[Sequence[int]]) -> list[Sequence[int]]:
    """A palette (RGB), with other colours for the classes of the generated scenes."""
    return [_COLOURS.get(*pair) for pair in zip(classes, palette, strict=True)]
