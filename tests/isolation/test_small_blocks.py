"""Small blocks, of which several lie in one granule: what is charged for it, and whose it is."""

from __future__ import annotations

import itertools

import pytest

from support.isolation import CONTEXT, MIB, World

# Whoever is first compiles everything, which takes a busy machine most of a minute.
pytestmark = [pytest.mark.native, pytest.mark.timeout(600)]

OUT_OF_MEMORY = "2"


def test_no_thread_gives_up_a_granule_s_charge_before_another_has_it(world: World) -> None:
    """Wherever a thread is stopped that takes a small block, what another one gives up there nobody else is given."""
    container = world.container(memory_mib=1000)
    tenant = container.run().started()
    assert tenant.ask(f"take linear {996 * MIB - CONTEXT}") == "0"
    for bytes_ in (MIB, 300_000):
        assert tenant.ask(f"take linear {bytes_}") == "0"
    for step in itertools.count(1):
        first, more, _, stopped = tenant.ask(f"meet-at-step {step} 800000 600000 {2 * MIB}").split()
        assert (first, more) == ("0", OUT_OF_MEMORY), f"stopped at step {step}"
        assert container.peak == 1000 * MIB
        assert container.account().processes[tenant.process.pid] == (998 * MIB,) == (container.used,)
        if stopped == "0":
            break
    assert step > 5
