"""``python -m mmbixt.gpu_check``: whether results on a GPU are right, and how long they take."""
