"""``python -m mmbixt.timm train.py ...``: a script of timm that knows mmbixt's models."""

import runpy
import sys
from pathlib import Path

import mmbixt.timm  # noqa: F401 (for the names)

if __name__ == '__main__':
    if len(sys.argv) < 2:
        sys.exit('python -m mmbixt.timm SCRIPT ...: for example train.py of timm')
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)  # as Python does for a script
    runpy.run_path(sys.argv[0], run_name='__main__')
