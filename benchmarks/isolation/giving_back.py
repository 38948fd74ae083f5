"""How soon idle compute that somebody burst into is its owner's again, on the fake driver, which tells no use.

`.venv/bin/python benchmarks/isolation/giving_back.py`: a slice of 10 % and one of best effort, each with one process
and with eight, use the whole GPU; then the slice of 90 % begins. What both used, by tenths of a second from then on.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from aliquot_agent.isolation.pacing import Share
from support.isolation import Container, World, build
from support.pacing import Pacer

OWNER = 90
ALONE_S, TENTHS = 2, 15


def used(world: World, containers: list[Container]) -> tuple[int, list[int]]:
    """The time, and the GPU's time that each container has used."""
    return time.monotonic_ns(), [world.busy_ns(container.number) for container in containers]


def given_back(world: World, *, guarantee: int, processes: int) -> list[tuple[int, int]]:
    """By tenths of a second, what who bursts and the owner had, in percent."""
    burst, owner = (world.container(memory_mib=8000, guarantee=share, rate=share) for share in (guarantee, OWNER))
    many, one = [burst.run().started() for _ in range(processes)], owner.run().started()
    shares = {
        burst: Share(guarantee=guarantee / 100, limit=1.0),
        owner: Share(guarantee=OWNER / 100, limit=OWNER / 100),
    }
    with Pacer(shares):
        for tenant in many:
            tenant.tell("use 60 kernel 200 100")
        time.sleep(ALONE_S)
        one.tell("use 60 kernel 200 100")
        points = [used(world, [burst, owner])]
        for _ in range(TENTHS):
            time.sleep(0.1)
            points.append(used(world, [burst, owner]))
    for tenant in (*many, one):
        tenant.close()
    return [
        (round(100 * (late[1][0] - early[1][0]) / span), round(100 * (late[1][1] - early[1][1]) / span))
        for early, late in itertools.pairwise(points)
        if (span := late[0] - early[0])
    ]


def main() -> None:
    """Print all of it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        world = World(built=build(cache=folder), folder=folder)
        for guarantee, processes in itertools.product((10, 0), (1, 8)):
            tenths = given_back(world, guarantee=guarantee, processes=processes)
            said = " ".join(f"{mine}/{its}" for mine, its in tenths)
            print(f"{guarantee} % with {processes} processes that may burst, beside {OWNER} %: {said}")
        world.close()


if __name__ == "__main__":
    main()
