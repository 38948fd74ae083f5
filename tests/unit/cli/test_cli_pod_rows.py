"""Who has a slice and who waits, as `aliquot ps` lists them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from aliquot_cli.pod_rows import PodRow, Used, pod_rows
from aliquot_cli.pod_stages import Stage
from aliquot_cli.pod_table import pod_table
from aliquot_cli.tables import ago
from aliquot_core.objects import Pod, PodCondition, Queue
from aliquot_scheduler.queues.said.entry import plan_of
from aliquot_scheduler.queues.telling.rows import rows
from aliquot_scheduler.queues.telling.standing import Standing
from support.centre import NAMES, WALL, asks, bound, gpus, make_node, make_pod, picture_with

GATED = {"schedulingGates": [{"name": NAMES.gate}]}
NODES = (make_node("n1", gpus("n1", 2)),)


def held(uid: str, compute: int, *, gpu: int = 0, phase: str = "Running") -> Pod:
    """A pod with a slice."""
    return bound(asks(uid, compute, 1000, phase=phase), node="n1", held={f"GPU-n1-{gpu}": (compute, 1000)})


def waiting(uid: str, compute: int, *, at: int = 0, said: Sequence[dict[str, Any]] = ()) -> Pod:
    """A pod behind its gate, and what is said of it."""
    pod = asks(uid, compute, 1000, spec=GATED, creationTimestamp=f"2026-11-21T09:{at:02}:00Z")
    conditions = msgspec.convert(said, list[PodCondition])
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, conditions=conditions))


def listed(*pods: Pod, used: dict[str, Used] | None = None) -> list[PodRow]:
    """Rows by all that is known."""
    picture = picture_with(*NODES)
    for pod in pods:
        picture.pod_seen(pod)
    standing = Standing(picture=picture, plan=plan_of([], [], names=NAMES), pods=pods, names=NAMES, wall=WALL)
    return pod_rows(pods, names=NAMES, picture=picture, standing=standing, used=used)


def test_whoever_holds_comes_before_whoever_waits_in_the_order_of_turns() -> None:
    """So that the next one stands on top of those who wait."""
    rows = listed(waiting("late", 20, at=9), waiting("early", 20, at=1), held("runs", 30))
    assert [(row.name, row.state, row.place) for row in rows] == [
        ("pod-runs", Stage.RUNNING, 0),
        ("pod-early", Stage.WAITING, 1),
        ("pod-late", Stage.WAITING, 2),
    ]
    # As `aliquot queue` calls it where there is no Queue.
    assert {row.queue for row in rows} == {"default"}


def test_turns_come_before_ages() -> None:
    """Who came last and goes first stands first."""
    spec = {"metadata": {"name": "q"}, "spec": {"namespaces": ["*"]}}
    plan = plan_of([msgspec.convert(spec, Queue)], [], names=NAMES)
    pods = [
        asks(
            name,
            20,
            1000,
            labels={NAMES.queue: "q"},
            creationTimestamp=f"2026-11-21T09:{at:02}:00Z",
            spec={**GATED, "priority": priority},
        )
        for name, at, priority in (("old", 1, 0), ("urgent", 9, 1000))
    ]
    standing = Standing(picture=picture_with(*NODES), plan=plan, pods=pods, names=NAMES, wall=WALL)
    rows = pod_rows(pods, names=NAMES, standing=standing)
    assert [(row.name, row.place, row.queue) for row in rows] == [("pod-urgent", 1, "q"), ("pod-old", 2, "q")]


def test_what_is_held_is_told_by_gpu() -> None:
    """With the GPU's number on its node and its model; what was asked counts no more."""
    (row,) = listed(held("a", 30, gpu=1))
    (part,) = row.gpus
    assert (part.index, part.model, part.compute, part.memory) == (1, "NVIDIA A100-SXM4-80GB", 30, 1000)
    assert (row.compute, row.memory, row.node) == (30, 1000, "n1")


def test_who_has_ended_holds_nothing() -> None:
    """Its grant stands on it still, but the slice is another's now."""
    (row,) = listed(held("a", 30, phase="Succeeded"))
    assert (row.state, row.gpus) == (Stage.DONE, [])


def test_use_is_told_of_whoever_it_is_known_of() -> None:
    """And not known is not nothing."""
    used = {"team/pod-a": Used(compute=12, memory=700), "team/pod-c": Used(memory=5)}
    rows = listed(held("a", 30), held("b", 30, gpu=1), held("c", 30), used=used)
    assert [row.used for row in rows] == [Used(compute=12, memory=700), Used(), Used(memory=5)]
    table = pod_table(rows, wide=False, everywhere=False, now=WALL)
    column = table[0].index("USED")
    assert [line[column] for line in table[1:]] == ["12 %, 700 MiB", "-", "5 MiB"]
    nothing_told = pod_table(listed(held("a", 30)), wide=False, everywhere=False, now=WALL)
    assert nothing_told[0] == table[0]
    assert nothing_told[1][column] == "-"


def test_without_rights_the_pod_s_own_word_is_told() -> None:
    """No place, no GPU's number; the reason is what the leader has written."""
    said = {"type": NAMES.admitted, "status": "False", "reason": "NoRoom", "message": "no node has room"}
    rows = pod_rows([held("a", 30), waiting("b", 20, said=[said])], names=NAMES)
    assert [(row.name, row.place, row.why) for row in rows] == [("pod-a", 0, ""), ("pod-b", 0, "no node has room")]
    assert pod_table(rows, wide=False, everywhere=False, now=WALL)[1][3:5] == ["n1", "GPU-n1-0"]


def test_pods_that_ask_nothing_are_not_listed() -> None:
    """They are kubectl's business; a request that can't be read is listed without numbers."""
    odd = make_pod("odd", {"name": "main", "resources": {"limits": {NAMES.compute: "1.5.5"}}})
    rows = pod_rows([make_pod("plain", {"name": "main"}), odd], names=NAMES)
    assert [(row.name, row.compute) for row in rows] == [("pod-odd", None)]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (59, "59s"), (60, "1m"), (7200, "2h"), (200_000, "2d"), (-5, "0s")]
)
def test_ages_are_told_in_their_largest_unit(seconds: float, text: str) -> None:
    """A clock that runs ahead makes nothing younger than new."""
    assert ago("2026-11-21T10:00:00Z", now=WALL + seconds) == text


def test_without_queues_nothing_is_borrowed() -> None:
    """There is nobody from whom."""
    plan = plan_of([], [], names=NAMES)
    standing = Standing(picture=picture_with(*NODES), plan=plan, pods=[held("runs", 30)], names=NAMES, wall=WALL)
    (row,) = rows(plan, statuses={}, standing=standing)
    assert (row.name, row.compute.used, row.compute.borrowed, row.memory.borrowed) == ("default", 30, None, None)
