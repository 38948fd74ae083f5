"""How well shares of a GPU's time hold, on the fake driver, which serves contexts in turns whatever the limits are.

`.venv/bin/python benchmarks/isolation/shares.py`: 10, 20, 30 and 40 % contend for 12 s; of the last 10, what each used
in all, and its furthest second. Then
30 % beside 70 % that has eight processes, 10 % alone that may burst, and a burst that gives way.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from aliquot_agent.isolation.pacing import Share
from support.isolation import Container, World, build
from support.pacing import Pacer

SHARES = (10, 20, 30, 40)
SETTLING_S, SECONDS = 2, 10


def busy(world: World, containers: list[Container]) -> tuple[int, list[int]]:
    """The time, and what each container used so far."""
    return time.monotonic_ns(), [world.busy_ns(container.number) for container in containers]


def percents(before: tuple[int, list[int]], after: tuple[int, list[int]]) -> list[float]:
    """What each used in between."""
    span = after[0] - before[0]
    return [100 * (late - early) / span for early, late in zip(before[1], after[1], strict=True)]


def contend(
    world: World,
    how: str,
    *,
    micros: int,
    batch: int,
    slices: Sequence[int] = SHARES,
    processes: Sequence[int] = (1, 1, 1, 1),
) -> None:
    """All shares at once."""
    containers = [world.container(memory_mib=4000, guarantee=share, rate=share) for share in slices]
    counts = zip(containers, processes, strict=True)
    tenants = [container.run().started() for container, count in counts for _ in range(count)]
    shares = [Share(guarantee=share / 100, limit=share / 100) for share in slices]
    with Pacer(dict(zip(containers, shares, strict=True))):
        for tenant in tenants:
            tenant.tell(f"use {SETTLING_S + SECONDS + 1} {how} {micros} {batch}")
        time.sleep(SETTLING_S)
        points = [busy(world, containers)]
        for _ in range(SECONDS):
            time.sleep(1)
            points.append(busy(world, containers))
    total = percents(points[0], points[-1])
    seconds = [percents(early, late) for early, late in itertools.pairwise(points)]
    furthest = [max((second[i] - share for second in seconds), key=abs) for i, share in enumerate(slices)]
    print(
        how,
        f"{micros} us:",
        "10 s",
        [f"{value:.1f}" for value in total],
        "furthest second off by",
        end=" ",
    )
    print([f"{value:+.1f}" for value in furthest], f"idle {100 - sum(total):.1f}")
    for tenant in tenants:
        tenant.close()


def alone(world: World) -> None:
    """A slice of 10 % that may burst, natively and held."""
    for interposed in (False, True):
        container = world.container(memory_mib=1000, guarantee=10, rate=10)
        tenant = container.run(interposed=interposed).started()
        with Pacer({container: Share(guarantee=0.1, limit=1.0)}):
            tenant.tell("use 6 kernel 200 100")
            time.sleep(1)
            start = busy(world, [container])
            time.sleep(4.5)
            (percent,) = percents(start, busy(world, [container]))
        print("alone,", "10 % that may burst" if interposed else "native", f"{percent:.1f} %")
        tenant.close()


def give_back(world: World) -> None:
    """How long after a neighbour's first launch a burst still uses more than its guarantee and a tenth."""
    burst, quiet = (world.container(memory_mib=1000, guarantee=share, rate=share) for share in (10, 90))
    one, other = burst.run().started(), quiet.run().started()
    with Pacer({burst: Share(guarantee=0.1, limit=1.0), quiet: Share(guarantee=0.9, limit=0.9)}):
        one.tell("use 6 kernel 200 100")
        time.sleep(2)
        other.tell("use 3 kernel 200 100")
        points = [busy(world, [burst, quiet])]
        for _ in range(20):
            time.sleep(0.1)
            points.append(busy(world, [burst, quiet]))
    tenths = [percents(early, late) for early, late in itertools.pairwise(points)]
    print("a burst at 10 % beside 90 %, by tenths of a second:", [f"{mine:.0f}/{its:.0f}" for mine, its in tenths])
    one.close()
    other.close()


def main() -> None:
    """Print all of it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        world = World(built=build(cache=folder), folder=folder)
        for how, micros, batch in (("kernel", 200, 100), ("graph", 1000, 20), ("cooperative", 200, 100)):
            contend(world, how, micros=micros, batch=batch)
        contend(world, "kernel", micros=200, batch=100, slices=(30, 70), processes=(1, 8))
        alone(world)
        give_back(world)
        world.close()


if __name__ == "__main__":
    main()
