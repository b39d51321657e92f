"""BiXT on points: classification of shapes and segmentation of their parts, with mmengine alone."""

from projects.points.datasets import ModelNet40, ShapeNetPart
from projects.points.metrics import PartIoUMetric, ShapeAccuracyMetric
from projects.points.models import PartSegmentor, PointClassifier
from projects.points.network import PointBiXT
from projects.points.sample import SampleShapes
from projects.points.transforms import (
    DropPoints,
    PackPoints,
    SamplePoints,
    ScaleAndShift,
    UnitSphere,
)

__all__ = [
    'DropPoints',
    'ModelNet40',
    'PackPoints',
    'PartIoUMetric',
    'PartSegmentor',
    'PointBiXT',
    'PointClassifier',
    'SamplePoints',
    'SampleShapes',
    'ScaleAndShift',
    'ShapeAccuracyMetric',
    'ShapeNetPart',
    'UnitSphere',
]
