"""A scrape of a full node (8 GPUs x 64 slices) from the real agent process, and what a sample costs it.

.venv/bin/python benchmarks/scrape.py [--scrapes 200]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import sys
import tempfile
import time
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from benchmarks.node import GPUS, Bench, bench_node

from aliquot_agent.gpus.model import GpuProcess, GpuUsage, ProcessKind
from aliquot_agent.pods.residents import ProcResidents
from aliquot_agent.web.accounts import Tenant, accounts
from aliquot_core.grant import ContainerGrant, Grant, Slice
from aliquot_core.objects import Pod
from aliquot_core.quantities import MiB, Percent
from aliquot_standalone.ports import any_port

SLICES = GPUS * 64
# The agent of this benchmark samples so often, so that the full node is in the page soon.
SAMPLE = 1.0


async def scrape(port: int) -> bytes:
    """One scrape; the whole answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: node\r\n\r\n")
    answer = await reader.read()
    writer.close()
    return answer


def cpu_seconds(page: bytes) -> float:
    """What the agent has used so far, as its page says: a busy machine changes that less than it does the clock."""
    (line,) = [line for line in page.splitlines() if line.startswith(b"process_cpu_seconds_total ")]
    return float(line.split()[1])


def figures(what: str, took: list[float]) -> None:
    """Print a median and the 99th percentile."""
    took.sort()
    print(
        f"{what:<46} n={len(took):<5} p50 {statistics.median(took):7.2f} ms   p99 {took[int(len(took) * 0.99)]:7.2f} ms"
    )


async def until_full(port: int) -> int:
    """Wait until every slice is in the page; how long the page is."""
    while True:
        page = await scrape(port)
        if page.count(b"\naliquot_slice_memory_used_bytes{") == SLICES:
            return len(page)
        await asyncio.sleep(SAMPLE)


async def scrapes(bench: Bench, *, port: int, count: int) -> None:
    """Fill the node, then scrape it."""
    seats = [await bench.seat(number) for number in range(SLICES)]
    bench.save()
    for seat in seats:
        await bench.start(seat)
    length = await until_full(port)
    took, used = [], cpu_seconds(await scrape(port))
    for _ in range(count):
        began = time.perf_counter()
        await scrape(port)
        took.append((time.perf_counter() - began) * 1000)
        await asyncio.sleep(0.02)
    used = cpu_seconds(await scrape(port)) - used
    figures(f"scrape of {SLICES} slices, {length / 1024:.0f} KiB", took)
    print(f"agent's CPU time for each, all else that it did included: {used / count * 1000:.2f} ms")


def sampling() -> None:
    """What putting a process of every slice to its account costs, besides the driver's own answer."""
    folder = Path(tempfile.mkdtemp(prefix="aliquot-proc-"))
    tenants, processes = {}, []
    for number in range(SLICES):
        uid, container = f"3f0c8a11-5c1e-4f6f-9f4e-{number:012x}", f"{number:064x}"
        (folder / str(number + 1)).mkdir()
        (folder / str(number + 1) / "cgroup").write_text(f"0::/kubepods/burstable/pod{uid}/{container}\n")
        part = Slice(gpu=f"GPU-{number % GPUS}", compute=Percent(1), limit=Percent(1), memory=MiB(100))
        grant = Grant(node="n", pod=uid, containers={"main": ContainerGrant(slices=(part,), isolation="observe")})
        status = {"containerStatuses": [{"name": "main", "containerID": f"containerd://{container}"}]}
        pod = msgspec.convert({"metadata": {"name": f"pod-{number}", "uid": uid}, "status": status}, Pod)
        tenants[uid] = Tenant(pod=pod, grant=grant)
        processes.append(GpuProcess(pid=number + 1, memory_mib=90, sm_percent=1, kind=ProcessKind.COMPUTE))
    usages = [
        GpuUsage(uuid=f"GPU-{gpu}", memory_used_mib=0, processes=tuple(processes[gpu::GPUS])) for gpu in range(GPUS)
    ]
    register, took = ProcResidents(folder), []
    for _ in range(50):
        began = time.process_time()
        dwellings = register.dwellings({process.pid for process in processes})
        found = accounts(usages=usages, dwellings=dwellings, tenants=tenants, standing={})
        took.append((time.process_time() - began) * 1000)
        assert all(one.used_mib == 90 for one in found.slices)
    figures(f"CPU time of accounting for {SLICES} processes", took)


async def main() -> None:
    """Run both parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scrapes", type=int, default=200)
    chosen = parser.parse_args()
    with contextlib.ExitStack() as kept:
        port = any_port(keep=kept.enter_context)
        async with bench_node(ALIQUOT_AGENT_HTTP_PORT=str(port), ALIQUOT_AGENT_SAMPLE=str(SAMPLE)) as bench:
            await scrapes(bench, port=port, count=chosen.scrapes)
    sampling()


if __name__ == "__main__":
    asyncio.run(main())
