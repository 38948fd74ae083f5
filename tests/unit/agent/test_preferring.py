"""Which ids the kubelet should take, when the pod that it asks for is news to the agent."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from aliquot_agent.pods.bound_pods import BoundPods
from aliquot_agent.signal import Signal
from aliquot_agent.starting.device_ids import device_tables
from aliquot_agent.starting.kubelet_view import Listed, Recorded
from aliquot_agent.starting.starter import HEARD_OF_WITHIN, Starter
from aliquot_core.door import Prefer
from aliquot_core.grant import ContainerGrant, Grant, Slice, encode_grant
from aliquot_core.inventory import Gpu, Inventory
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.quantities import MiB, Percent
from aliquot_kube.changes import Added
from support.clocks import VirtualClock

NAMES = Names()
CARDS = Inventory(
    gpus=(
        Gpu(uuid="GPU-aaaa", index=0, model="A100", memory=80_000),
        Gpu(uuid="GPU-bbbb", index=1, model="A100", memory=80_000),
    )
)
IDS = [device.id for device in device_tables(CARDS, names=NAMES, best_effort_slots=1)[NAMES.compute]]


class NothingRecorded:
    """A kubelet that holds nothing."""

    async def recorded(self) -> tuple[Recorded, ...]:
        """No container holds ids."""
        return ()

    async def listed(self) -> tuple[Listed, ...]:
        """No pod is listed."""
        return ()


class Unused:
    """Specs and processes, which advice has nothing to do with."""

    def write(self, **_: Any) -> None:
        """Never called."""
        raise NotImplementedError

    def standing(self) -> dict[str, Any]:
        """Nobody stands."""
        return {}

    def alive(self, uids: Collection[str]) -> set[str]:
        """Nobody lives."""
        return {uid for uid in uids if uid == "never"}


def pod_on_b() -> Pod:
    """A pod with 2 % of the second GPU."""
    part = Slice(gpu="GPU-bbbb", compute=Percent(2), limit=Percent(2), memory=MiB(500))
    grant = Grant(node="n1", pod="u1", containers={"main": ContainerGrant(slices=(part,), isolation="observe")})
    limits: Mapping[str, str] = {NAMES.compute: "2", NAMES.memory: "500"}
    return msgspec.convert(
        {
            "metadata": {"name": "p", "namespace": "t", "uid": "u1", "annotations": {NAMES.grant: encode_grant(grant)}},
            "spec": {"nodeName": "n1", "containers": [{"name": "main", "resources": {"limits": limits}}]},
        },
        Pod,
    )


class Desk:
    """A starter that is asked for two ids."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        changed = Signal()
        self.pods = BoundPods(changed=changed)
        self.starter = Starter(
            node="n1",
            names=NAMES,
            clock=self.clock,
            view=NothingRecorded(),
            residents=Unused(),
            specs=Unused(),
            pods=self.pods,
            inventory=lambda: CARDS,
            changed=changed,
        )

    def ask(self) -> asyncio.Task[list[str]]:
        """The kubelet's question."""
        call = Prefer(call=1, resource=NAMES.compute, available=IDS, must_include=[], size=2)
        return asyncio.create_task(self.starter.prefer(call))


async def test_a_pod_of_which_the_kubelet_hears_first_is_waited_for() -> None:
    """Two watches deliver when they like: advice given a moment too early would name the wrong GPU."""
    desk = Desk()
    answer = desk.ask()
    await desk.clock.advance(HEARD_OF_WITHIN / 2)
    assert not answer.done()
    desk.pods.take(Added(new=pod_on_b()))
    await desk.clock.advance(0.0)
    assert {device.split("-")[0] for device in answer.result()} == {IDS[-1].split("-")[0]}


async def test_a_pod_that_never_comes_is_not_waited_for_long() -> None:
    """The kubelet admits one pod after another: a pod without a grant must not hold up the others."""
    desk = Desk()
    answer = desk.ask()
    await desk.clock.advance(HEARD_OF_WITHIN)
    assert answer.result() == []
