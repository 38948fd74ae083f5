"""The first list of ids, on a node whose kubelet answers nothing yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import pytest

from aliquot_agent.door import AgentDoor
from aliquot_agent.pods.bound_pods import BoundPods
from aliquot_agent.signal import Signal
from aliquot_agent.starting.kubelet_view import KubeletViewError, Listed, Recorded
from aliquot_agent.starting.offer import PACE, Offer
from aliquot_agent.starting.starter import Starter
from aliquot_core.door import Device
from aliquot_core.held_on_sick import Held
from aliquot_core.inventory import Gpu, Inventory
from aliquot_core.names import Names
from support.centre import sick
from support.clocks import VirtualClock
from support.loops import running

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


class Remembering(YoungKubelet):
    """A kubelet that has given ids away: 30 of a GPU that was lost since, and 10 of one that is there."""

    async def recorded(self) -> tuple[Recorded, ...]:
        """Of two pods."""
        given = {
            "lost": [f"bbbb-{number:02}" for number in range(30)],
            "here": [f"aaaa-{number:02}b" for number in range(10)],
        }
        return tuple(
            Recorded(uid=uid, container="main", resource=NAMES.compute, ids=frozenset(ids), names=())
            for uid, ids in given.items()
        )


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


Told = list[dict[str, tuple[int, int]]]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """Each list that the endpoint is handed: by resource how many ids there are, and how many of them are healthy."""
    lists: Told = []

    def publish(_: AgentDoor, table: Mapping[str, Sequence[Device]]) -> None:
        now = {name: (len(ids), sum(one.healthy for one in ids)) for name, ids in table.items()}
        if lists[-1:] != [now]:
            lists.append(now)

    monkeypatch.setattr(AgentDoor, "publish", publish)
    return lists


def offering(
    *,
    clock: VirtualClock,
    changed: Signal,
    inventory: Inventory = CARDS,
    held: Callable[[], Mapping[str, Held] | None] = dict,
    kubelet: YoungKubelet | None = None,
) -> Offer:
    """The offer of a node with these GPUs."""
    starter = Starter(
        node="n1",
        names=NAMES,
        clock=clock,
        view=kubelet or YoungKubelet(),
        residents=Unused(),
        specs=Unused(),
        pods=BoundPods(changed=changed),
        inventory=lambda: inventory,
        changed=changed,
    )
    return Offer(
        names=NAMES,
        clock=clock,
        door=AgentDoor(path="nowhere", agent="a", handler=starter, clock=clock, random=lambda: 0.5),
        starter=starter,
        inventory=lambda: inventory,
        held=lambda _: held(),
        best_effort_slots=4,
        changed=changed,
    )


async def test_the_first_list_waits_for_no_kubelet(told: Told) -> None:
    """Without a record and with a silent PodResources the ids are told at once: pods that wait would fail."""
    clock = VirtualClock()
    async with running(offering(clock=clock, changed=Signal()).run()):
        await clock.advance(0.0)
    assert told == [{NAMES.compute: (100, 100), NAMES.best_effort: (4, 4)}]


async def test_of_a_sick_gpu_so_much_is_told_as_is_held_once_that_is_known(told: Told) -> None:
    """Before nothing is taken back: an agent that starts again has not heard of the pods yet."""
    clock, changed, known = VirtualClock(), Signal(), dict[str, Held]()
    ill = Inventory(gpus=(sick(CARDS.gpus[0]),))
    async with running(offering(clock=clock, changed=changed, inventory=ill, held=lambda: known or None).run()):
        await clock.advance(0.0)
        known[CARDS.gpus[0].uuid] = Held(compute=30, best_effort=1)
        changed.notify()
        await clock.advance(PACE)
    assert told == [
        {NAMES.compute: (100, 100), NAMES.best_effort: (4, 4)},
        {NAMES.compute: (100, 30), NAMES.best_effort: (4, 1)},
    ]


async def test_what_is_held_of_a_gpu_that_is_away_counts_from_the_first_word_on(told: Told) -> None:
    """An agent that starts does not find it, and has not heard of the pods yet: the kubelet's own record knows."""
    clock, changed, known = VirtualClock(), Signal(), dict[str, Held]()
    offer = offering(clock=clock, changed=changed, held=lambda: known or None, kubelet=Remembering())
    async with running(offer.run()):
        await clock.advance(0.0)
        known["GPU-bbbb"] = Held(compute=30)
        changed.notify()
        await clock.advance(PACE)
    assert told == [
        {NAMES.compute: (130, 130), NAMES.best_effort: (4, 4)},
        {NAMES.compute: (200, 130), NAMES.best_effort: (8, 4)},
    ]
