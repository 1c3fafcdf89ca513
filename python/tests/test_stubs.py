"""The stub files are those that the registered schemas give."""

import subprocess
import sys
from pathlib import Path


def test_stubs_are_up_to_date():
    script = Path(__file__).parent.parent / "stubs" / "generate.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
