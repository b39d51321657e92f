import os
import subprocess
import sys
from pathlib import Path

from variants import FAMILIES

TESTS = Path(__file__).parents[1]


def test_lora_by_peft_changes_every_family_and_merges_into_it():
    folders = [TESTS.parent, TESTS, Path(sys.prefix, 'peft')]  # see requirements/peft.txt
    environment = os.environ | {'PYTHONPATH': os.pathsep.join(map(str, folders))}
    command = [sys.executable, '-W', 'ignore', TESTS / 'lora.py']
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-len(FAMILIES) :] == list(FAMILIES)
