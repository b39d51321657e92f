"""BiXT on points: classification of shapes and segmentation of their parts, with mmengine alone."""

from mmbixt.points.datasets import ModelNet40, ShapeNetPart
from mmbixt.points.metrics import PartIoUMetric, ShapeAccuracyMetric
from mmbixt.points.models import PartSegmentor, PointClassifier
from mmbixt.points.network import PointBiXT
from mmbixt.points.sample import SampleShapes
from mmbixt.points.transforms import DropPoints, PackPoints, SamplePoints, ScaleAndShift, UnitSphere

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
