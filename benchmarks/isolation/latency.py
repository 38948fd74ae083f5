"""How long requests of an inference pod take beside a pod that tries everything, on the fake driver.

`.venv/bin/python benchmarks/isolation/latency.py`: 30 % answers requests of 6 ms of GPU time, 24 ms apart, for 10 s.
Beside it, 70 % with eight processes floods the GPU in every way to launch, with kernels of up to 100 ms. Once nobody is
held (the GPU's own time slicing), once both are, once one more of its processes goes round the interposer. Then by MPS
alone, as the fake driver models it (`tests/isolation/fake_cuda/world.h`): each process as wide as its container may be.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from aliquot_agent.isolation.pacing import Share
from support.isolation import Container, Tenant, World, build
from support.pacing import Pacer

SETTLING_S, SECONDS = 2, 10
# How to launch, microseconds a kernel, kernels a wait.
FLOODS = [
    *[("kernel", 200, 1000), ("thread", 200, 1000), ("config", 1000, 100), ("cooperative", 5000, 20)],
    *[("graph", 20_000, 10), ("kernel", 100_000, 2), ("kernel", 2000, 100), ("graph", 1000, 100)],
]


def flood(
    attacker: Container,
    *,
    interposed: bool,
    environment: dict[str, str] | None = None,
    floods: Sequence[tuple[str, int, int]] = FLOODS,
) -> list[Tenant]:
    """All its processes, at work."""
    tenants = [attacker.run(interposed=interposed, environment=environment).started() for _ in floods]
    for tenant, (how, micros, batch) in zip(tenants, floods, strict=True):
        tenant.tell(f"use {SETTLING_S + SECONDS + 1} {how} {micros} {batch}")
    return tenants


def by_mps(percent: int) -> dict[str, str]:
    """What a grant on a GPU of MPS puts into the environment."""
    return {"CUDA_MPS_PIPE_DIRECTORY": "/none", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(percent)}


def clients(attacker: Container, *, floods: Sequence[tuple[str, int, int]] = FLOODS) -> list[Tenant]:
    """All its processes as clients of MPS."""
    return flood(attacker, interposed=False, environment=by_mps(70), floods=floods)


def going_round(attacker: Container) -> list[Tenant]:
    """The same, and one that loads a driver library of its own."""
    rogue = attacker.run(interposed=False).started()
    rogue.tell(f"use {SETTLING_S + SECONDS + 1} kernel 200 1000")
    return [*flood(attacker, interposed=True), rogue]


def measured(
    world: World,
    what: str,
    *,
    held: bool,
    others: Callable[[Container], list[Tenant]],
    environment: dict[str, str] | None = None,
) -> None:
    """Print what requests took."""
    inference = world.container(memory_mib=1000, guarantee=30, rate=30)
    attacker = world.container(memory_mib=8000, guarantee=70, rate=70)
    shares = {inference: Share(guarantee=0.3, limit=0.3), attacker: Share(guarantee=0.7, limit=0.7)}
    tenants = others(attacker)
    server = inference.run(interposed=held, environment=environment).started()
    with Pacer(shares):
        time.sleep(SETTLING_S)
        count, half, most, worst = map(int, server.ask(f"serve {SECONDS} 200 30 24000").split())
    line = f"{what:<40} {count:>4} requests, p50 {half / 1000:6.1f} ms, p99 {most / 1000:6.1f} ms"
    print(line, f"longest {worst / 1000:6.1f} ms", flush=True)
    for tenant in [*tenants, server]:
        tenant.close()


def main() -> None:
    """Print all of it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        world = World(built=build(cache=folder), folder=folder)
        measured(world, "alone, not held", held=False, others=lambda _: [])
        measured(world, "alone, held to 30 %", held=True, others=lambda _: [])
        measured(
            world, "time slicing, beside eight processes", held=False, others=lambda one: flood(one, interposed=False)
        )
        measured(world, "held, beside eight that are held", held=True, others=lambda one: flood(one, interposed=True))
        measured(world, "held, and a ninth goes round", held=True, others=going_round)
        client = by_mps(30)
        measured(world, "MPS, alone", held=False, others=lambda _: [], environment=client)
        single = partial(clients, floods=FLOODS[:1])
        measured(world, "MPS, beside one process of 70 %", held=False, others=single, environment=client)
        measured(world, "MPS, beside eight processes", held=False, others=clients, environment=client)
        world.close()


if __name__ == "__main__":
    main()
