"""tools/dev/setup_env.sh, as far as it goes without a Python that could make an environment."""

import os
import subprocess

from helpers import CONFIGS

SETUP = CONFIGS.parent / 'tools/dev/setup_env.sh'


def test_an_environment_of_another_checkout_is_kept(tmp_path):
    link = tmp_path / '.venv/lib/python3.12/site-packages/mmbixt.pth'
    for file in (tmp_path / 'other/tools/dev/setup_env.sh', link, tmp_path / '.venv/setup.stamp'):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f'{tmp_path}/other\n')
    environment = {**os.environ, 'VENV': str(tmp_path / '.venv'), 'PYTHON': '/bin/false'}
    done = subprocess.run([SETUP], env=environment, capture_output=True, text=True)
    assert f'.venv was made by another checkout, {tmp_path}/other' in done.stderr
    assert link.exists()
