"""What threads read first, at the same time."""

from __future__ import annotations

import subprocess
import sys

import pytest

AT_ONCE = """
import sys, threading
from {module} import {name}
{before}
sys.setswitchinterval(1e-6)
together = threading.Barrier(8)
def read():
    together.wait()
    for _ in range(20): {call}
threads = [threading.Thread(target=read) for _ in range(8)]
for one in threads: one.start()
for one in threads: one.join()
"""
FAILURE = """
body = b'{"kind":"Status","reason":"NotFound","details":{"causes":[{"field":"a"}],"retryAfterSeconds":1},"code":404}'
"""
POD = """
import msgspec
body = b'{"metadata":{"name":"a"},"spec":{"containers":[{"name":"b"}]},"status":{"phase":"Running"}}'
"""
# Of 20 runs of one process 11 ended with a signal where the first thread to read made the reading.
RUNS = 15


@pytest.mark.parametrize(
    "text",
    [
        AT_ONCE.format(
            module="aliquot_kube.errors",
            name="error_from_response",
            before=FAILURE,
            call="error_from_response(code=404, headers={}, body=body, where='here')",
        ),
        AT_ONCE.format(
            module="aliquot_core.objects", name="Pod", before=POD, call="msgspec.json.decode(body, type=Pod)"
        ),
    ],
    ids=["failures", "objects"],
)
def test_many_threads_read_their_first_at_once(text: str) -> None:
    """None of them meets a reading that another one is still making, which would end the process."""
    for _ in range(RUNS):
        ended = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
        assert (ended.returncode, ended.stderr) == (0, "")
