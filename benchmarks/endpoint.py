"""How quick and how small the endpoint is: a real process, a real gRPC client, a trivial agent at its door.

    .venv/bin/python benchmarks/endpoint.py

Bounded: some 20 s. Targets (Allocate p99 ≤ 3 ms, PreStart p99 ≤ 25 ms one after another, 100 at once within 2 s,
registered ≤ 1.5 s after exec) are for the whole node; here the agent says yes at once, so this is the endpoint's part.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from aliquot_deviceplugin.endpoint.settings import EndpointSettings
from aliquot_proto import deviceplugin_v1beta1_pb2 as pb
from support.endpoints import COMPUTE, ScriptedAgent, agent, settings_in, short_folder, start_process, table
from support.scripted_kubelet import Client, ScriptedKubelet

GPUS = 8
CALLS = 2_000
STARTS = 5


async def stop(process: asyncio.subprocess.Process) -> None:
    """Let it leave as an update would."""
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), 10) == 0


async def timed(call: Callable[[int], Awaitable[object]], *, count: int) -> list[float]:
    """Milliseconds of so many calls, one after another."""
    taken = []
    for number in range(count):
        begun = time.perf_counter()
        await call(number)
        taken.append((time.perf_counter() - begun) * 1000)
    return sorted(taken)


def report(what: str, taken: list[float]) -> None:
    """One line of the table."""
    p50, p99 = taken[len(taken) // 2], taken[min(len(taken) - 1, int(len(taken) * 0.99))]
    print(f"{what:<44} {p50:>9.2f} {p99:>9.2f} {taken[-1]:>9.2f}   {len(taken)}")


def memory(pid: int) -> dict[str, float]:
    """MiB of a process: what it maps, and its proportional share."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    sizes = {name: int(rest.split()[0]) / 1024 for name, _, rest in (line.partition(":") for line in lines)}
    return {name: sizes[name] for name in ("Rss", "Pss", "Pss_Anon")}


def ids(number: int, *, count: int = 12) -> list[str]:
    """Some ids of one GPU."""
    first = number * count % (100 - count)
    return [f"{number % GPUS}-{slot:02}" for slot in range(first, first + count)]


async def calls(client: Client) -> None:
    """Time what the kubelet calls."""
    free = [device.id for device in table(gpus=GPUS)]

    async def allocate(number: int) -> None:
        asked = [pb.ContainerAllocateRequest(devices_ids=ids(number))]
        await client.stub.Allocate(pb.AllocateRequest(container_requests=asked))

    async def prestart(number: int) -> None:
        await client.stub.PreStartContainer(pb.PreStartContainerRequest(devices_ids=ids(number)), timeout=30)

    async def prefer(_number: int) -> None:
        asked = pb.ContainerPreferredAllocationRequest(available_deviceIDs=free, allocation_size=12)
        await client.stub.GetPreferredAllocation(pb.PreferredAllocationRequest(container_requests=[asked]))

    async def all_at_once(_number: int) -> None:
        await asyncio.gather(*(prestart(number) for number in range(100)))

    report("Allocate", await timed(allocate, count=CALLS))
    report("GetPreferredAllocation of 800", await timed(prefer, count=200))
    report("PreStartContainer", await timed(prestart, count=CALLS))
    report("100 x PreStartContainer at once, all answered", await timed(all_at_once, count=10))


async def registrations(settings: EndpointSettings, kubelet: ScriptedKubelet) -> None:
    """Time starts from exec, and kubelet restarts from the appearance of its socket."""
    from_exec = []
    for _ in range(STARTS):
        begun = time.perf_counter()
        process = await start_process(settings)
        await kubelet.until_listed(COMPUTE, 100 * GPUS)
        from_exec.append((time.perf_counter() - begun) * 1000)
        await stop(process)
        await kubelet.until(lambda: COMPUTE not in kubelet.clients)
    report("exec → the kubelet has the list", sorted(from_exec))
    process = await start_process(settings)
    await kubelet.until_listed(COMPUTE, 100 * GPUS)
    restarts = []
    for _ in range(20):
        await kubelet.stop()
        begun = time.perf_counter()
        await kubelet.start()
        await kubelet.until_listed(COMPUTE, 100 * GPUS)
        restarts.append((time.perf_counter() - begun) * 1000)
    report("kubelet.sock → the kubelet has the list", sorted(restarts))
    await stop(process)


async def main() -> None:
    """Run all of it."""
    with short_folder() as folder:
        settings = settings_in(folder, takeover_patience=10.0)
        kubelet = ScriptedKubelet(folder / "dp")
        await kubelet.start()
        process = await start_process(settings)
        print(f"{'milliseconds':<44} {'p50':>9} {'p99':>9} {'longest':>9}   calls")
        async with agent(settings, ScriptedAgent(), resources={COMPUTE: table(gpus=GPUS)}):
            client = await kubelet.until_listed(COMPUTE, 100 * GPUS)
            await calls(client)
        sizes = memory(process.pid)
        await stop(process)
        await kubelet.until(lambda: COMPUTE not in kubelet.clients)
        await registrations(settings, kubelet)
        await kubelet.stop()
        print(f"memory of the endpoint, MiB: {', '.join(f'{name} {size:.1f}' for name, size in sizes.items())}")


if __name__ == "__main__":
    random.seed(0)
    os.environ["ALIQUOT_LOG_LEVEL"] = "error"
    asyncio.run(asyncio.wait_for(main(), 120))
