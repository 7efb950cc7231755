"""The system user that runs the embedded server when Postroad runs as root."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys

import pytest

PROCESSES = 6
_ASK = """
import sys
from postroad.postgres import server_user as module
module.SYSTEM_USER = sys.argv[1]
sys.stdin.readline()
print(module.server_user().uid)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root creates users")
def test_processes_that_start_together_get_one_user() -> None:
    name = f"postroad-test-{secrets.token_hex(4)}"
    asking = [
        subprocess.Popen(
            [sys.executable, "-c", _ASK, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(PROCESSES)
    ]
    try:
        for one in asking:
            assert one.stdin is not None
            one.stdin.write("go\n")
            one.stdin.flush()
        answers = {one.communicate()[0].strip() for one in asking}
        listed = subprocess.run(["id", "-u", name], capture_output=True, text=True, check=True)
        assert answers == {listed.stdout.strip()}
    finally:
        subprocess.run(["userdel", name], capture_output=True, check=False)
