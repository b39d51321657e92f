"""Imported by tools before torch: without a GPU, threads that wait leave their core to others."""

import os

if not any(map(os.path.exists, ('/dev/nvidiactl', '/dev/kfd', '/dev/dxg'))):
    os.environ.setdefault('OMP_WAIT_POLICY', 'passive')
