"""Generated sample data in the layouts of ADE20K and COCO."""

from mmbixt.datasets.sample_data import write_sample_data
from mmbixt.datasets.scenes import make_scene

__all__ = ['make_scene', 'write_sample_data']
