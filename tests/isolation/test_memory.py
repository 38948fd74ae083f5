"""Memory: no way past the limit, no refusal of what fits."""

from __future__ import annotations

import pytest

from support.isolation import CONTEXT, MIB, World

OUT_OF_MEMORY = "2"
WAYS = [
    *["linear", "managed", "pitched", "async", "async-thread", "pool", "array", "array3d", "mipmap", "handle"],
    *["mapped", "external", "context", "module", "text", "library", "graph", "heap"],
]
SIZES = (100_000, 2 * MIB, 17 * MIB + 5, 400 * MIB)

pytestmark = pytest.mark.native


@pytest.mark.parametrize("way", WAYS)
def test_no_way_leads_past_the_limit(world: World, way: str) -> None:
    """Whatever a tenant takes until it is refused, as by the driver, it never held more than its limit."""
    container = world.container(memory_mib=1000)
    tenant = container.run().started()
    taken = [tenant.ask(f"fill {way} {size}").split() for size in SIZES]
    assert {why for _, why in taken} == {OUT_OF_MEMORY}
    assert int(taken[0][0]) > 0
    assert CONTEXT < container.peak <= 1000 * MIB
    tenant.ask("empty")
    assert container.used == CONTEXT
