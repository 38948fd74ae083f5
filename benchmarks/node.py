"""Speed and memory of the node half: real endpoint and agent processes, a scripted kubelet over real gRPC.

    .venv/bin/python benchmarks/node.py [--slices 512] [--seconds 60]

Three parts, one run: how soon the endpoint is registered; Allocate and PreStartContainer with 100 pods on the node, one
after another and 100 at once; then memory and CPU of both processes with the node full (8 GPUs x 64 slices), at rest.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from aliquot_agent.gpus.simulated import simulated_uuid
from aliquot_agent.whole_file import replace_file
from aliquot_core.grant import ContainerGrant, Grant, Slice, encode_grant
from aliquot_core.names import Names
from aliquot_core.quantities import MiB, Percent
from aliquot_kube.clock import SystemClock
from aliquot_proto import deviceplugin_v1beta1_pb2 as pb
from aliquot_standalone.apiserver.embedded import kubeconfig, serving
from aliquot_standalone.kubelet.checkpoint import encode
from aliquot_standalone.kubelet.holdings import Holding, HoldingKey
from support.one_node import OneNode
from support.scripted_kubelet import Client, ScriptedKubelet

NAMES = Names()
GPUS = 8
NODE = "bench"


class Seat(msgspec.Struct, frozen=True, kw_only=True):
    """One container of one percent: its pod, its ids and the CDI name that Allocate answered."""

    uid: str
    ids: tuple[str, ...]


class Bench:
    """A node whose kubelet is played, so that only our two processes are measured."""

    def __init__(self, *, node: OneNode, kubelet: ScriptedKubelet) -> None:
        self.node = node
        self.kubelet = kubelet
        self.records: list[tuple[HoldingKey, Holding]] = []

    @property
    def compute(self) -> Client:
        """The kubelet's client of the compute resource."""
        return self.kubelet.clients[NAMES.compute]

    async def seat(self, number: int) -> Seat:
        """Create and bind a pod of one percent, have its id allocated, and record that as a kubelet does."""
        gpu = number % GPUS
        pod = await self.node.create(_pod(number))
        part = Slice(gpu=simulated_uuid(node=NODE, index=gpu), compute=Percent(1), limit=Percent(1), memory=MiB(100))
        grant = Grant(
            node=NODE, pod=pod.metadata.uid, containers={"main": ContainerGrant(slices=(part,), isolation="observe")}
        )
        await self.node.bind(pod, {NAMES.grant: encode_grant(grant)})
        device = self.compute.devices[gpu * 100 + number // GPUS].ID
        answer = await self.allocate(device)
        key = HoldingKey(pod=pod.metadata.uid, container="main", resource=NAMES.compute)
        self.records.append((key, Holding(ids_by_numa={0: [device]}, answer=answer)))
        return Seat(uid=pod.metadata.uid, ids=(device,))

    async def allocate(self, *ids: str) -> bytes:
        """One Allocate; the answer as the kubelet would keep it."""
        request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=ids)])
        answer = await self.compute.stub.Allocate(request)
        return answer.container_responses[0].SerializeToString()

    async def start(self, seat: Seat) -> None:
        """One PreStartContainer."""
        await self.compute.stub.PreStartContainer(pb.PreStartContainerRequest(devices_ids=seat.ids), timeout=30)

    def save(self) -> None:
        """Write the kubelet's record."""
        replace_file(self.node.folders.checkpoint, encode(self.records, {}))


@asynccontextmanager
async def bench_node(**more: str) -> AsyncIterator[Bench]:
    """API server here, endpoint and agent as processes, the kubelet played; `more` is for their environment."""
    folder = Path(tempfile.mkdtemp(prefix="aliquot-bench-"))
    clock = SystemClock()
    async with serving(clock=clock) as server:
        (folder / "kubeconfig").write_bytes(msgspec.json.encode(kubeconfig(server.url)))
        node = OneNode.at(name=NODE, folder=folder, url=server.url, clock=clock, random=random.random)
        await node.create_namespace(NAMES.namespace)
        await node.create_node()
        kubelet = ScriptedKubelet(node.folders.device_plugins)
        node.folders.create()
        await kubelet.start()
        environment = node.environment(gpus=f"{GPUS}xA100-80GB") | {"MALLOC_ARENA_MAX": "2"} | more
        try:
            await node.start("endpoint", environment=environment)
            await node.start("agent", environment=environment)
            await kubelet.until_listed(NAMES.compute, GPUS * 100)
            yield Bench(node=node, kubelet=kubelet)
        finally:
            await kubelet.stop()
            await node.stop("agent")
            await node.stop("endpoint")
            await node.close()
            shutil.rmtree(folder)


async def timed(what: str, calls: list[Callable[[], Awaitable[object]]]) -> None:
    """Call one after another; print the median and the 99th percentile."""
    took = []
    for call in calls:
        began = time.perf_counter()
        await call()
        took.append((time.perf_counter() - began) * 1000)
    took.sort()
    print(
        f"{what:<46} n={len(took):<5} p50 {statistics.median(took):7.2f} ms   p99 {took[int(len(took) * 0.99)]:7.2f} ms"
    )


async def at_once(bench: Bench, seats: list[Seat]) -> None:
    """All PreStarts at one time."""
    began = time.perf_counter()
    done = await asyncio.gather(*(bench.start(seat) for seat in seats), return_exceptions=True)
    failed = sum(isinstance(one, BaseException) for one in done)
    print(
        f"{'PreStartContainer, all at once':<46} n={len(seats):<5} all answered after "
        f"{(time.perf_counter() - began) * 1000:.0f} ms, failed {failed}"
    )


async def registration(bench: Bench) -> None:
    """From exec to registered, with the state file of the run before."""
    took = []
    for _ in range(5):
        await bench.node.stop("endpoint")
        await bench.kubelet.until(lambda: NAMES.compute not in bench.kubelet.clients)
        began = time.perf_counter()
        await bench.node.start("endpoint", environment=bench.node.environment(gpus=f"{GPUS}xA100-80GB"))
        await bench.kubelet.until_listed(NAMES.compute, GPUS * 100)
        took.append((time.perf_counter() - began) * 1000)
    figures = f"n={len(took):<5} median {statistics.median(took):.0f} ms   max {max(took):.0f} ms"
    print(f"{'endpoint: exec to list received (state file)':<46} {figures}")


async def at_rest(bench: Bench, *, seconds: float) -> None:
    """Memory and CPU of both processes while nothing happens."""
    pids = {command: process.pid for command, process in bench.node.processes.items()}
    before = {command: _cpu(pid) for command, pid in pids.items()}
    await asyncio.sleep(seconds)
    total = 0.0
    for command, pid in pids.items():
        rss, pss = _memory(pid)
        total += pss
        share = (_cpu(pid) - before[command]) / seconds * 100
        print(f"{command:<46} RSS {rss:6.1f} MiB   PSS {pss:6.1f} MiB   CPU {share:.2f} % of a core over {seconds:g} s")
    print(f"{'both together':<46} PSS {total:6.1f} MiB")


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory(pid: int) -> tuple[float, float]:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    found = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines[1:]}
    return found["Rss"], found["Pss"]


def _pod(number: int) -> dict[str, object]:
    limits = {NAMES.compute: "1", NAMES.memory: "100"}
    container = {"name": "main", "image": "none", "resources": {"limits": limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{number}", "namespace": "default"},
        "spec": {"containers": [container], "schedulerName": "by-hand"},
    }


async def main() -> None:
    """Run all parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slices", type=int, default=GPUS * 64)
    parser.add_argument("--seconds", type=float, default=60.0)
    chosen = parser.parse_args()
    async with bench_node() as bench:
        await registration(bench)
        seats = [await bench.seat(number) for number in range(100)]
        bench.save()
        await bench.start(seats[0])
        spare = [device.ID for device in bench.compute.devices[-90:]]
        await timed("Allocate, 100 pods on the node", [lambda: bench.allocate(*spare[:30])] * 1000)
        await timed("PreStartContainer first time, 100 pods", [partial(bench.start, seat) for seat in seats])
        await timed("PreStartContainer again, 100 pods", [partial(bench.start, seat) for seat in seats * 5])
        await at_once(bench, seats)
        seats += [await bench.seat(number) for number in range(100, chosen.slices)]
        bench.save()
        for seat in seats[100:]:
            await bench.start(seat)
        print(f"node full: {len(seats)} slices on {GPUS} GPUs")
        await at_rest(bench, seconds=chosen.seconds)


if __name__ == "__main__":
    asyncio.run(main())
