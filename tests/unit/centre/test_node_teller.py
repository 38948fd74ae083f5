"""Who is told, by an Event on the node, that no pod with a slice is placed there any more."""

from __future__ import annotations

import random

import msgspec

from aliquot_scheduler.centre.node_teller import NodeTeller
from aliquot_scheduler.picture.hearing import Hearing, deaf_after
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.telling.notices import Notice
from support.centre import NAMES, WALL, gpus, make_lease, make_node
from support.centre_means import means
from support.centre_race import SlowApi
from support.clocks import VirtualClock


class Told:
    """Stands for those who write Events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, bool]] = []
        # Of whom nothing can be told.
        self.bad = ""

    def tell_of_node(self, node: str, notice: Notice, *, action: str, warning: bool = False) -> None:
        """One more, of whom and what."""
        assert action
        if node == self.bad:
            raise KeyError(node)
        assert notice.message
        self.events.append((node, notice.reason, warning))


class Town:
    """Nodes, and who tells of them."""

    def __init__(self) -> None:
        self.silence = 0.0
        self.clock = VirtualClock()
        self.picture = Picture(names=NAMES, hearing=Hearing(silence=lambda: self.silence, after=deaf_after(2.0)))
        self.told = Told()
        given = means(SlowApi([], chance=random.Random(1)), clock=self.clock, why_not=str)
        self.teller = NodeTeller(picture=self.picture, means=msgspec.structs.replace(given, events=self.told))

    def beat(self, *nodes: str) -> None:
        """These are heard."""
        self.picture.tell_time(self.clock.monotonic())
        for node in nodes:
            renewed = f"2026-11-21T10:{int(self.clock.monotonic()) // 60:02d}:{int(self.clock.monotonic()) % 60:02d}Z"
            self.picture.lease_seen(make_lease(node, renewed=renewed), wall=WALL)

    async def after(self, seconds: float) -> list[tuple[str, str, bool]]:
        """What is told by then."""
        await self.clock.advance(seconds)
        self.teller.look()
        return self.told.events


def town(*nodes: str) -> Town:
    """Nodes that were just heard."""
    made = Town()
    made.beat()
    for node in nodes:
        made.picture.node_seen(make_node(node, gpus(node, 1)))
    made.beat(*nodes)
    made.teller.look()
    return made


async def test_a_node_that_falls_silent_is_told_of_once_and_again_when_it_is_back() -> None:
    """As a warning; its neighbour is not named."""
    made = town("n1", "n2")
    await made.after(6.0)
    made.beat("n2")
    assert await made.after(3.0) == []
    for _ in range(2):
        assert await made.after(1.0) == [("n1", "NodeOut", True)]
    made.beat("n1", "n2")
    for _ in range(2):
        assert await made.after(1.0) == [("n1", "NodeOut", True), ("n1", "NodeIn", False)]


async def test_nobody_is_told_of_nodes_without_gpus_that_are_cordoned_or_gone_or_unheard() -> None:
    """A node that is new and has none, somebody's will, a node that was taken away, and our own deafness."""
    made = town("cordoned", "gone", "well")
    made.picture.node_seen(make_node("plain", (), annotations={NAMES.inventory: "{"}))
    made.picture.node_seen(make_node("cordoned", gpus("cordoned", 1), cordoned=True))
    made.picture.node_gone("gone")
    assert await made.after(6.0) == []
    made.silence = 6.0
    assert await made.after(6.0) == []
    assert made.picture.nodes["well"].out
    made.silence = 0.0
    made.beat("well")
    assert await made.after(2.0) == []
    assert not made.picture.nodes["well"].out


async def test_one_node_that_can_t_be_told_costs_no_other_its_event_and_is_told_later() -> None:
    """Neither that it is out nor that it is back is lost."""
    place = town("n1", "n2")
    place.told.bad = "n1"
    assert await place.after(60.0) == [("n2", "NodeOut", True)]
    assert place.teller.untold == 1
    place.told.bad = ""
    assert await place.after(10.0) == [("n2", "NodeOut", True), ("n1", "NodeOut", True)]
    place.told.bad = "n2"
    place.beat("n1", "n2")
    assert (await place.after(1.0))[2:] == [("n1", "NodeIn", False)]
    place.told.bad = ""
    for _ in range(6):
        place.beat("n1", "n2")
        await place.after(1.0)
    assert place.told.events[3:] == [("n2", "NodeIn", False)]
