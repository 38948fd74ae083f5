"""How soon nothing is bound any more that is as good as gone: on virtual time, so to a hundredth."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from aliquot_kube.patches import merge_patch
from aliquot_kube.resources import NODES
from simulation.universe.node import SimNode
from simulation.universe.town import Town, TownScale

HEART_BEAT = 5.0
# The leader looks at the clock so often; and so long a word may take from a node to the API server and on to it.
LOOKS, ON_THE_WAY = 0.5, 0.1
AT_ONCE = 2 * ON_THE_WAY
CLOSELY = 0.01
NODE = "node-1"
CALM = TownScale(
    again="pytest tests/simulation/test_out_in_time.py",
    nodes=2,
    replicas=1,
    deadly=False,
    heartbeat=HEART_BEAT,
    look_every=1.0,
)


async def _kill_agent(node: SimNode, _: Town) -> None:
    """It can't say anything any more."""
    node.kill_agent()


async def _stop_agent(node: SimNode, _: Town) -> None:
    """It is told to leave, and says so."""
    assert node.life is not None
    assert node.agent is not None
    node.life.begin(node.agent.drain)


async def _lose_plugin(node: SimNode, _: Town) -> None:
    """The process that the kubelet knows is gone; the agent lives."""
    node.kubelet.plugin_gone()
    node.endpoint.crash()


async def _lose_gpu(node: SimNode, _: Town) -> None:
    """Its first one has fallen off the bus."""
    node.hardware.lose(0)


async def _cordon(node: SimNode, town: Town) -> None:
    """Somebody wants nothing more there."""
    await town.api.client.patch(NODES, name=node.name, patch=merge_patch({"spec": {"unschedulable": True}}))


# How long pods may be bound there still, at the least and at the most.
Strike = Callable[[SimNode, Town], Awaitable[None]]
STRIKES: dict[str, tuple[Strike, float, float]] = {
    # One beat may be late without harm.
    "the agent is killed": (_kill_agent, HEART_BEAT, 2 * HEART_BEAT + LOOKS + ON_THE_WAY),
    "the agent leaves": (_stop_agent, 0.0, AT_ONCE),
    "the plugin is away": (_lose_plugin, 0.0, AT_ONCE),
    "a GPU is sick": (_lose_gpu, 0.0, AT_ONCE),
    "the node is cordoned": (_cordon, 0.0, AT_ONCE),
}


def given_up_after(strike: Strike, *, phase: float) -> float:
    """So many seconds after it struck nothing is bound there any more; it strikes at any time between two beats."""
    town = Town(1, CALM)
    times: list[float] = []

    def is_given() -> bool:
        """Whether the leader would bind to that node's first GPU."""
        reign = town.replicas[0].reign
        assert reign is not None
        grid, row = reign.picture.grid, reign.picture.nodes[NODE].row
        return bool(grid.bindable[row] and grid.open[row, 0])

    async def until(holds: Callable[[], bool]) -> None:
        while not holds():
            town.raise_broken()
            await asyncio.sleep(CLOSELY)

    async def story() -> None:
        await town.furnish()
        for node in town.nodes:
            node.start_agent()
        town.replicas[0].start()
        async with asyncio.timeout(120):
            await until(lambda: not town.shortcomings())
            await asyncio.sleep(phase)
            await strike(next(node for node in town.nodes if node.name == NODE), town)
            struck = town.clock.monotonic()
            await until(lambda: not is_given())
            times.append(town.clock.monotonic() - struck)

    town.play(story())
    (took,) = times
    return took


@pytest.mark.parametrize("phase", [0.0, 2.2, 4.5])
@pytest.mark.parametrize("what", STRIKES)
def test_nothing_is_bound_any_more_in_time(what: str, phase: float) -> None:
    """At once where somebody can say so, within two heart-beats where nobody can."""
    strike, least, most = STRIKES[what]
    assert least <= given_up_after(strike, phase=phase) <= most
