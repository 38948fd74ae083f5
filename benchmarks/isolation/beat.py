"""What one beat of the pacemaker costs the agent: CPU time, by the number of interposed containers on a node of 8 GPUs.

Run:  .venv/bin/python benchmarks/isolation/beat.py
"""

from __future__ import annotations

import struct
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from aliquot_agent.isolation.beyond import Owner
from aliquot_agent.isolation.limits_file import ACCOUNT_BYTES, ACCOUNT_MAGIC
from aliquot_agent.isolation.pacemaker import Pacemaker
from aliquot_agent.isolation.slice_files import SliceFiles
from aliquot_core.grant import ContainerGrant, Slice
from aliquot_core.quantities import MiB, Percent
from aliquot_kube.clock import SystemClock

BEATS, GPUS, PROCESSES = 100, 8, 2


def container(files: SliceFiles, number: int) -> None:
    """One that launches, with two processes."""
    part = Slice(
        gpu=f"GPU-a0a0a0a0-a0a0-a0a0-a0a0-a0a0a0a0a00{number % GPUS}",
        compute=Percent(8),
        limit=Percent(50),
        memory=MiB(1000),
    )
    own = files.write(
        token=f"token-{number}",
        owner=Owner(pod=f"uid-{number}", container="main"),
        grant=ContainerGrant(slices=(part,), isolation="interposer"),
        driver="/run/aliquot/isolation/driver/libcuda.so",
        contexts={part.gpu: 300},
    )
    account = bytearray(ACCOUNT_BYTES)
    struct.pack_into("<8sII", account, 0, ACCOUNT_MAGIC, 1, PROCESSES)
    struct.pack_into("<6Q", account, 1024, 0, 5, 5, time.monotonic_ns() + 10**12, 1, 5)
    for slot in range(PROCESSES):
        struct.pack_into("<QIIQ", account, 8192 + slot * 192, 1, 100 + slot, 1, 500 << 20)
    (own / "account").write_bytes(account)


def main(counts: list[int]) -> None:
    """Print a line for each number of containers."""
    for count in counts:
        with tempfile.TemporaryDirectory() as folder:
            files = SliceFiles(folder=Path(folder), library=Path(folder) / "none")
            for number in range(count):
                container(files, number)
            pacemaker = Pacemaker(files=files, clock=SystemClock())
            spent = []
            for _ in range(BEATS):
                before = time.process_time()
                pacemaker.beat()
                spent.append(time.process_time() - before)
            milliseconds = median(spent) * 1000
            print(f"{count:4} containers: {milliseconds:6.2f} ms a beat, {milliseconds:5.1f} % of a core", flush=True)


if __name__ == "__main__":
    main([int(count) for count in sys.argv[1:]] or [10, 100, 300])
