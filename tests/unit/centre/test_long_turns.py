"""Whatever holds the leader up is told: what it was, and whose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast
from unittest.mock import Mock

import pytest
from prometheus_client import CollectorRegistry

from aliquot_kube.changes import Added, Deleted, Synced
from aliquot_kube.transport import Transport
from aliquot_scheduler.centre.binder import Binder
from aliquot_scheduler.centre.gatekeeper import Gatekeeper
from aliquot_scheduler.centre.long_turns import LONG
from aliquot_scheduler.centre.means import Means
from aliquot_scheduler.centre.metrics import CentreCollector
from support.centre import NAMES, asks, gpus, make_lease, make_node
from support.centre_means import means
from support.clocks import VirtualClock
from support.reigns import known_reign

POD = asks("p", 10, 1_000)
NODE = make_node("n1", gpus("n1", 1))
Spending = Callable[..., Mock]


@pytest.fixture(name="spending")
def _spending(monkeypatch: pytest.MonkeyPatch) -> Spending:
    """Makes a function that takes so long, and then answers."""
    now = [0.0]
    monkeypatch.setattr(VirtualClock, "monotonic", lambda _: now[0])

    def made(seconds: float, answer: object = None) -> Mock:
        def spend(*_: object, **__: object) -> object:
            now[0] += seconds
            return answer

        return Mock(side_effect=spend)

    return made


@pytest.fixture(name="told")
def _told(caplog: pytest.LogCaptureFixture) -> Callable[[], list[tuple[str, str, float]]]:
    """By what the leader was held up, of whose, and for how long."""

    def told() -> list[tuple[str, str, float]]:
        said = [vars(record) for record in caplog.records if record.message == "held the leader up"]
        return [(one["by"], one["of"], one["seconds"]) for one in said]

    return told


Told = Callable[[], list[tuple[str, str, float]]]


def its_means() -> Means:
    """Nothing is asked of any server."""
    return means(cast("Transport", None), clock=VirtualClock())


ASKED: dict[str, tuple[str, Callable[[Binder], object]]] = {
    "filter": ("filter", lambda binder: binder.filter(POD, ["n1"])),
    "prioritize": ("prioritize", lambda binder: binder.prioritize(POD, ["n1"])),
    "prioritize_plain": ("prioritize", lambda binder: binder.prioritize_plain(POD, ["n1"])),
}


@pytest.mark.parametrize("verb", ASKED)
@pytest.mark.parametrize("seconds", [LONG, LONG + 0.1])
def test_a_long_answer_is_told(*, verb: str, seconds: float, spending: Spending, told: Told) -> None:
    """With the pod that was asked for; up to half a second nothing is said."""
    sort, ask = ASKED[verb]
    long, mine = seconds > LONG, its_means()
    ask(Binder(desk=Mock(**{verb: spending(seconds)}), charged_in=Mock(), labels_of=lambda _: {}, means=mine))
    assert told() == ([(sort, "pod team/pod-p", 0.6)] if long else [])
    assert mine.long_turns.counts[sort] == long


async def test_a_long_look_before_a_binding_is_told(spending: Spending, told: Told) -> None:
    """Though nothing comes of it."""
    desk = Mock(begin_bind=spending(0.7, "no room"), pods={"p": POD})
    binder = Binder(desk=desk, charged_in=Mock(), labels_of=lambda _: {}, means=its_means())
    assert await binder.bind(namespace="team", name="pod-p", uid="p", node="n1") == "no room"
    assert told() == [("bind", "pod team/pod-p", 0.7)]


@pytest.mark.parametrize(("found", "whose"), [([POD], "pod team/pod-p"), ([], "nobody who could be let in")])
def test_a_long_search_for_whose_turn_it_is_is_told(
    *, found: list[Any], whose: str, spending: Spending, told: Told
) -> None:
    """With the pod that was found, or that none was."""

    def turns(_desk: object, *, now: float) -> Any:
        spending(0.8)(now)
        yield from (Mock(pod=pod) for pod in found)

    gatekeeper = Gatekeeper(desk=Mock(), turns=Mock(turns=turns), means=its_means())
    assert [turn.pod for turn in gatekeeper._due(now=0.0)] == found
    assert told() == [("turn", whose, 0.8)]


EVENTS: dict[str, tuple[str, str, Any, str]] = {
    "a node": ("nodes", "picture.node_seen", Added(new=NODE), "node n1"),
    "a node that goes": ("nodes", "picture.node_gone", Deleted(old=NODE), "node n1"),
    "a pod": ("pods", "desk.pod_seen", Added(new=POD), "pod team/pod-p"),
    "a heart-beat": ("leases", "picture.lease_seen", Added(new=make_lease("n1")), f"lease {NAMES.namespace}/node-n1"),
    "the queues": ("queues", "turns.queues_seen", Synced(resource_version="1"), "queue all of them"),
}


@pytest.mark.parametrize("row", EVENTS)
def test_a_long_event_is_told_and_counted(row: str, spending: Spending, told: Told) -> None:
    """With the object that it is about; the metric says how many there were."""
    watch, step, event, whose = EVENTS[row]
    reign = known_reign()
    part, name = step.split(".")
    setattr(getattr(reign, part), name, spending(0.9))
    getattr(reign._watches, watch)._tell([event])
    assert told() == [("event", whose, 0.9)]
    registry = CollectorRegistry()
    registry.register(CentreCollector(reign=lambda: reign, leads=lambda: True))
    counts = {
        sort: registry.get_sample_value("aliquot_centre_long_turns_total", {"of": sort})
        for sort in ("event", "filter", "prioritize", "bind", "turn")
    }
    assert counts == {"event": 1.0, "filter": 0.0, "prioritize": 0.0, "bind": 0.0, "turn": 0.0}
