"""The labels that a sample scene uses, under the names and ids of ADE20K and COCO."""

from collections.abc import Sequence

#: Label values of the annotation files of ADE20K (1 to 150); 0 is what has no label.
ADE_LABELS = {
    'building': 2,
    'sky': 3,
    'tree': 5,
    'road': 7,
    'grass': 10,
    'sidewalk': 12,
    'person': 13,
    'earth': 14,
    'mountain': 17,
    'car': 21,
    'water': 22,
    'fence': 33,
    'sand': 47,
    'bench': 70,
    'boat': 77,
    'airplane': 91,
    'animal': 127,
}
UNLABELLED = 0

#: Colours for pictures (RGB): ADE20K's own palette has four greens among these classes.
ADE_COLOURS = {
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
    'fence': (245, 245, 225),
    'sand': (250, 225, 140),
    'bench': (255, 130, 0),
    'boat': (120, 0, 120),
    'airplane': (255, 0, 255),
    'animal': (255, 220, 0),
}


def sample_palette(classes: Sequence[str], palette: Sequence[Sequence[int]]) -> list[Sequence[int]]:
    """ADE20K's palette, but for the classes of the scenes in `ADE_COLOURS`."""
    return [ADE_COLOURS.get(*pair) for pair in zip(classes, palette, strict=True)]


#: COCO category of an instance -> name of its class in the label map.
COCO_TO_ADE = {
    'person': 'person',
    'car': 'car',
    'airplane': 'airplane',
    'boat': 'boat',
    'bench': 'bench',
    'dog': 'animal',
    'horse': 'animal',
    'sheep': 'animal',
    'cow': 'animal',
}

_COCO_NAMES = {
    'person': ['person'],
    'vehicle': [
        *['bicycle', 'car', 'motorcycle', 'airplane'],
        *['bus', 'train', 'truck', 'boat'],
    ],
    'outdoor': ['traffic light', 'fire hydrant', 'stop sign', 'parking meter', 'bench'],
    'animal': [
        *['bird', 'cat', 'dog', 'horse', 'sheep'],
        *['cow', 'elephant', 'bear', 'zebra', 'giraffe'],
    ],
    'accessory': ['backpack', 'umbrella', 'handbag', 'tie', 'suitcase'],
    'sports': [
        *['frisbee', 'skis', 'snowboard', 'sports ball', 'kite', 'baseball bat'],
        *['baseball glove', 'skateboard', 'surfboard', 'tennis racket'],
    ],
    'kitchen': ['bottle', 'wine glass', 'cup', 'fork', 'knife', 'spoon', 'bowl'],
    'food': [
        *['banana', 'apple', 'sandwich', 'orange', 'broccoli'],
        *['carrot', 'hot dog', 'pizza', 'donut', 'cake'],
    ],
    'furniture': ['chair', 'couch', 'potted plant', 'bed', 'dining table', 'toilet'],
    'electronic': ['tv', 'laptop', 'mouse', 'remote', 'keyboard', 'cell phone'],
    'appliance': ['microwave', 'oven', 'toaster', 'sink', 'refrigerator'],
    'indoor': [
        *['book', 'clock', 'vase', 'scissors'],
        *['teddy bear', 'hair drier', 'toothbrush'],
    ],
}
#: COCO counts to 90 and leaves these ids out.
_COCO_GAPS = {12, 26, 29, 30, 45, 66, 68, 69, 71, 83}


def coco_categories() -> list[dict]:
    """The ``categories`` list of the COCO annotation files: all 80, with their true ids."""
    ids = (number for number in range(1, 91) if number not in _COCO_GAPS)
    return [
        {'id': next(ids), 'name': name, 'supercategory': group}
        for group, names in _COCO_NAMES.items()
        for name in names
    ]
