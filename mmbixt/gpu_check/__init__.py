"""``python -m mmbixt.gpu_check``: whether all is right on a GPU, and how fast."""
