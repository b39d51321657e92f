"""Metrics, as pure functions on label maps."""

from mmbixt.evaluation.confusion import class_iou, confusion_matrix

__all__ = ['class_iou', 'confusion_matrix']
