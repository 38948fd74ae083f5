"""Who is told that kube-scheduler evicts pods with slices by priority, and that it was offered nobody."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from aliquot_core.instants import second_time
from aliquot_core.objects import Pod, PodCondition
from aliquot_kube.changes import Added, Change, Deleted, Modified, Synced
from aliquot_scheduler.centre.binder import Binder, NotReadyError, WhyNobody
from aliquot_scheduler.centre.by_priority import EvictionsByPriority
from aliquot_scheduler.centre.means import Means
from aliquot_scheduler.queues.telling.notices import Notice
from support.centre import WALL, asks, make_pod
from support.centre_means import means
from support.centre_race import SlowApi, Trial

SLICE, PLAIN = asks("slice", 30, 1_000), make_pod("plain", {"name": "main"})
BLIND = "nothing was heard of pods for 151 s"
REFUSED: dict[str, tuple[Pod, list[str], str, WhyNobody | None, bool]] = {
    "with slices, for anybody": (asks("p", 1, 300), ["plain"], "", WhyNobody.ASKS_FOR_SLICES, False),
    "without, for who has them": (PLAIN, ["slice"], "", WhyNobody.THEY_HAVE_SLICES, True),
    "without, for who has none": (PLAIN, ["other"], "", None, False),
    "while nothing is known": (PLAIN, ["other"], BLIND, WhyNobody.BLIND, False),
}


class Told:
    """Stands for those who write Events."""

    def __init__(self) -> None:
        self.warned: list[tuple[str, str]] = []

    def tell(self, pod: Pod, notice: Notice, *, action: str, warning: bool = False) -> None:
        """One more, of whom and why."""
        assert action
        assert warning
        self.warned.append((pod.metadata.uid, notice.reason))


def office(told: Told, *, why_not: str = "") -> tuple[Trial, Means]:
    """One pod with a slice is known there."""
    trial = Trial([SLICE], api=SlowApi([], chance=random.Random(1)))
    given = means(trial.api, clock=trial.clock, why_not=lambda: why_not)
    return trial, msgspec.structs.replace(given, events=told)


@pytest.mark.parametrize("row", REFUSED)
def test_whoever_is_offered_nobody_is_counted(row: str) -> None:
    """And one without slices is told so: no queue of ours says why it waits. Blind, nobody is named at all."""
    pod, victims, blind, why, tells = REFUSED[row]
    told = Told()
    trial, given = office(told, why_not=blind)
    binder = Binder(desk=trial.desk, means=given, charged_in=trial.turns.charged_in, labels_of=lambda _: {})
    if blind:
        with pytest.raises(NotReadyError, match="151 s"):
            binder.preempt(pod, {"n1": victims})
    else:
        assert binder.preempt(pod, {"n1": victims}) == ({} if why else {"n1": victims})
    assert binder.preemptions_refused == {one: int(one is why) for one in WhyNobody}
    assert told.warned == ([(pod.metadata.uid, "NobodyEvicted")] if tells else [])


def evicted(pod: Pod, **other: Any) -> Pod:
    """As kube-scheduler marks its victim."""
    said: Mapping[str, Any] = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", **other}
    conditions = [msgspec.convert(said, PodCondition)]
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, conditions=conditions))


def again(pod: Pod) -> Pod:
    """Another one under its name."""
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, uid="again"))


SEEN: dict[str, tuple[Change[Pod], int]] = {
    "it is marked": (Modified(old=SLICE, new=evicted(SLICE)), 1),
    "it was marked before": (Modified(old=evicted(SLICE), new=evicted(SLICE)), 0),
    "another one of its name is marked, too": (Modified(old=evicted(SLICE), new=again(evicted(SLICE))), 1),
    "it has no slices": (Modified(old=PLAIN, new=evicted(PLAIN)), 0),
    "its queue evicts it": (Modified(old=SLICE, new=evicted(SLICE, reason="EvictionByEvictionAPI")), 0),
    "it is marked no more": (Modified(old=SLICE, new=evicted(SLICE, status="False")), 0),
    "it came and was marked unheard": (Added(new=evicted(SLICE, lastTransitionTime="2026-11-21T09:00:00Z")), 1),
    "it is gone": (Deleted(old=evicted(SLICE)), 0),
}


@pytest.mark.parametrize("row", SEEN)
def test_each_slice_that_goes_by_priority_is_told_of_once(row: str) -> None:
    """On the pod, and in a number by which an alert begins."""
    change, count = SEEN[row]
    told = Told()
    seen = EvictionsByPriority(means=office(told)[1], led_until=WALL)
    seen.pod_changed(Synced(resource_version="7"))
    seen.pod_changed(change)
    assert seen.count == count
    assert [reason for _, reason in told.warned] == ["EvictedByPriority"] * count


# When kube-scheduler wrote it, when the leader before beat last, and whether whoever begins tells of it.
FOUND: dict[str, tuple[str | None, float | None, bool]] = {
    "nobody led": (second_time(WALL + 20), WALL, True),
    "nobody led yet, by a whole second": (second_time(WALL), WALL + 0.9, True),
    "by a clock that is a second behind": (second_time(WALL - 1), WALL + 0.9, True),
    "somebody led": (second_time(WALL - 20), WALL, False),
    "somebody led, and was then restarted": (second_time(WALL - 4), WALL, False),
    "nobody is known to have led": (second_time(WALL - 20), None, True),
    "nobody knows when": (None, WALL, True),
}


@pytest.mark.parametrize("row", FOUND)
def test_whoever_begins_to_lead_tells_of_those_that_went_while_nobody_led(row: str) -> None:
    """And of no other that it finds: each restart, and each new list, would tell of them again."""
    at, led_until, tells = FOUND[row]
    told = Told()
    seen = EvictionsByPriority(means=office(told)[1], led_until=led_until)
    found = evicted(SLICE, lastTransitionTime=at)
    for change in (Added(new=found), Added(new=PLAIN), Synced(resource_version="7"), Modified(old=found, new=found)):
        seen.pod_changed(change)
    assert (seen.count, told.warned) == ((1, [("slice", "EvictedByPriority")]) if tells else (0, []))
