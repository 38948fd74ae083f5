"""What changes while the heart-beat or the node is being written is told at once, not half a minute later."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import msgspec

from aliquot_agent.publishing.life_sign import LifeSign
from aliquot_agent.publishing.node_publisher import NodePublisher
from aliquot_agent.signal import Signal
from aliquot_core.door import KubeletSeen
from aliquot_core.held_on_sick import Held
from aliquot_core.inventory import Gpu, Inventory
from aliquot_core.names import Names
from aliquot_core.objects import Node
from aliquot_kube.client import KubeClient
from aliquot_kube.heartbeat import HeartBeat
from aliquot_kube.lease import LeaseKeeper
from aliquot_kube.resources import LEASES, NODES
from aliquot_kube.transport import Question
from support.clocks import VirtualClock
from support.fake_api import FakeApi
from support.loops import running

NAMES = Names()
LEASE = LEASES.path(namespace="system", name="node-n1")
NODE = NODES.path(name="n1")
SOON = 1.0  # far below half a minute, and below the time between two beats


class Changing:
    """A fact that changes at a chosen write, and says so."""

    def __init__(self, before: Any, after: Any) -> None:
        self.now, self._after = before, after
        self.changed = Signal()

    def at(self, method: str) -> Callable[[Question], None]:
        """What an API server does that answers while the fact changes."""

        def change(question: Question) -> None:
            if question.method == method and self.now is not self._after:
                self.now = self._after
                self.changed.notify()

        return change


async def test_a_kubelet_that_listens_while_away_is_being_written_is_told_at_once() -> None:
    """The scheduler binds to no node that is away: each second of it is lost."""
    api, clock = FakeApi(), VirtualClock()
    seen = Changing(None, KubeletSeen(listening=[NAMES.compute], registrations=1))
    beat = HeartBeat(
        keeper=LeaseKeeper(client=KubeClient(transport=api), namespace="system", name="node-n1"),
        clock=clock,
        random=lambda: 0.5,
        holder="we",
        interval=5.0,
    )
    sign = LifeSign(beat=beat, names=NAMES, clock=clock, kubelet=lambda: seen.now, changed=seen.changed)
    api.after = list(itertools.repeat(seen.at("PATCH"), 9))
    async with running(beat.run(), sign.run()):
        await clock.advance(SOON)
    assert api.objects[LEASE]["metadata"]["annotations"] == {NAMES.state: "ready"}


async def test_an_inventory_that_changes_while_the_node_is_being_written_is_published_at_once() -> None:
    """A GPU that falls sick just then must not be given for half a minute."""
    api, clock = FakeApi(), VirtualClock()
    gpu = Gpu(uuid="GPU-1", index=0, model="A100", memory=1000)
    inventory = Changing(Inventory(gpus=(gpu,), driver="1.0"), Inventory(gpus=(gpu,), driver="2.0"))
    for path in (NODE, f"{NODE}/status"):
        api.put(path, {"metadata": {"name": "n1"}, "status": {}})
    api.after = list(itertools.repeat(inventory.at("PATCH"), 9))
    publisher = NodePublisher(
        node="n1",
        names=NAMES,
        client=KubeClient(transport=api),
        clock=clock,
        random=lambda: 0.5,
        seen=lambda: msgspec.convert(api.objects[NODE], Node),
        inventory=lambda: inventory.now,
        held=lambda _: {},
        changed=inventory.changed,
    )
    async with running(publisher.run()):
        await clock.advance(SOON)
    written = json.loads(api.objects[NODE]["metadata"]["annotations"][NAMES.inventory])
    assert written["driver"] == "2.0"


async def test_the_node_s_memory_is_told_once_it_is_known_what_is_held_of_gpus_that_are_not_there() -> None:
    """It would be less for a moment, as an agent begins that has not heard of the pods yet."""
    api, clock, changed, known = FakeApi(), VirtualClock(), Signal(), dict[str, Held]()
    inventory = Inventory(gpus=(Gpu(uuid="GPU-1", index=0, model="A100", memory=1000),))
    for path in (NODE, f"{NODE}/status"):
        api.put(path, {"metadata": {"name": "n1"}, "status": {"capacity": {NAMES.memory: "1600"}}})
    publisher = NodePublisher(
        node="n1",
        names=NAMES,
        client=KubeClient(transport=api),
        clock=clock,
        random=lambda: 0.5,
        seen=lambda: msgspec.convert(api.objects[NODE], Node),
        inventory=lambda: inventory,
        held=lambda _: known or None,
        changed=changed,
    )
    async with running(publisher.run()):
        await clock.advance(SOON)
        assert [one.path for one in api.writes] == [NODE]
        known["GPU-lost"] = Held(memory=500)
        changed.notify()
        await clock.advance(SOON)
    assert api.objects[f"{NODE}/status"]["status"]["capacity"] == {NAMES.memory: "1500"}
