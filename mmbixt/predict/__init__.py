"""Label maps of images of any size, with memory for a band of tiles."""

from mmbixt.predict.predictor import Predictor

__all__ = ['Predictor']
