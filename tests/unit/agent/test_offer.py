"""The first list of ids, on a node whose kubelet answers nothing yet."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import pytest

from aliquot_agent.door import AgentDoor
from aliquot_agent.pods.bound_pods import BoundPods
from aliquot_agent.signal import Signal
from aliquot_agent.starting.kubelet_view import KubeletViewError, Listed, Recorded
from aliquot_agent.starting.offer import Offer
from aliquot_agent.starting.starter import Starter
from aliquot_core.inventory import Gpu, Inventory
from aliquot_core.names import Names
from support.clocks import VirtualClock

NAMES = Names()
CARDS = Inventory(gpus=(Gpu(uuid="GPU-aaaa", index=0, model="A100", memory=80_000),))


class YoungKubelet:
    """No record yet, and PodResources keeps whoever asks waiting."""

    async def recorded(self) -> tuple[Recorded, ...]:
        """There is no file."""
        raise KubeletViewError("there is no such file")

    async def listed(self) -> tuple[Listed, ...]:
        """Never answer."""
        await asyncio.Event().wait()
        raise AssertionError("unreachable")


class Unused:
    """Specs, processes and answers, which the list has nothing to do with."""

    def write(self, **_: Any) -> None:
        """Never called."""
        raise NotImplementedError

    def standing(self) -> dict[str, Any]:
        """Nobody stands."""
        return {}

    def alive(self, uids: Collection[str]) -> set[str]:
        """Nobody lives."""
        return {uid for uid in uids if uid == "never"}


async def test_the_first_list_waits_for_no_kubelet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a record and with a silent PodResources the ids are told at once: pods that wait would fail."""
    clock, changed = VirtualClock(), Signal()
    starter = Starter(
        node="n1",
        names=NAMES,
        clock=clock,
        view=YoungKubelet(),
        residents=Unused(),
        specs=Unused(),
        pods=BoundPods(changed=changed),
        inventory=lambda: CARDS,
        changed=changed,
    )
    door = AgentDoor(path="nowhere", agent="a", handler=starter, clock=clock, random=lambda: 0.5)
    told: list[dict[str, int]] = []
    monkeypatch.setattr(door, "publish", lambda table: told.append({name: len(ids) for name, ids in table.items()}))
    offer = Offer(
        names=NAMES,
        clock=clock,
        door=door,
        starter=starter,
        inventory=lambda: CARDS,
        held=lambda _: {},
        best_effort_slots=4,
        changed=changed,
    )
    running = asyncio.ensure_future(offer.run())
    await clock.advance(0.0)
    running.cancel()
    assert told == [{NAMES.compute: 100, NAMES.best_effort: 4}]
