"""Who waits for room is answered within a minute, however long a busy machine makes each of its naps."""

from __future__ import annotations

import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from support.isolation import MIB, TESTED, Built, Tenant, World

# Whoever is first compiles everything, which takes a busy machine most of a minute.
pytestmark = [pytest.mark.native, pytest.mark.timeout(600)]

OUT_OF_MEMORY = "2"
MINUTE_MS, SECOND_MS = 60_000, 1000


@pytest.fixture
def hurried(tmp_path: Path) -> dict[str, str]:
    """The environment of a program whose naps are over at once, and take twice as long by its clock."""
    library = tmp_path / "hurried.so"
    command = ["gcc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(library), str(TESTED / "hurried.c")]
    subprocess.run(command, check=True, timeout=60)
    return {"LD_PRELOAD": str(library)}


def waited_ms(tenant: Tenant, line: str, *, answer: str) -> int:
    """How long that takes by the program's own clock."""
    began = int(tenant.ask("clock"))
    assert tenant.ask(line) == answer
    return int(tenant.ask("clock")) - began


def test_a_graph_that_waits_for_its_stream_is_refused_after_a_minute(world: World, hurried: dict[str, str]) -> None:
    """The one before has all the room, and does not end."""
    container = world.container(memory_mib=1000)
    tenant = container.run(environment=hurried).started()
    for graph in range(2):
        assert tenant.ask(f"graph-make 1 {600 * MIB} 1 1000000000") == str(graph)
    assert tenant.ask("graph-launch 0 1") == "0"
    waited = waited_ms(tenant, "graph-launch 1 1", answer=OUT_OF_MEMORY)
    assert MINUTE_MS <= waited < MINUTE_MS + SECOND_MS


def test_who_takes_where_a_call_places_is_refused_after_a_minute(
    tmp_path: Path, built: Built, hurried: dict[str, str]
) -> None:
    """The call might bring the block where it has no room, and it does not end."""
    with closing(World(built=built, folder=tmp_path, memory_mib=(16_384, 16_384))) as world:
        tenant = world.container(memory_mib=1000, gpus=2).run(environment=hurried).started()
        assert tenant.ask(f"take managed {400 * MIB}") == "0"
        assert tenant.ask("on 1") == "0"
        assert tenant.ask(f"take linear {300 * MIB}") == "0"
        assert tenant.ask("on 0") == "0"
        waited = waited_ms(tenant, f"behind-placed {200 * MIB}", answer=f"{OUT_OF_MEMORY} 0")
    assert MINUTE_MS <= waited < MINUTE_MS + SECOND_MS
