"""Queues that were deleted, hang on nothing or got children: what is told of the pods that are left in them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from aliquot_cli.explain import _text as explanation_text
from aliquot_cli.main import main
from aliquot_cli.queue_text import answer_text
from aliquot_core.objects import Pod, Queue
from aliquot_scheduler.explaining import explain
from aliquot_scheduler.queues.said.entry import Plan, plan_of
from aliquot_scheduler.queues.telling.forms import NO_QUEUE, QueueAnswer
from aliquot_scheduler.queues.telling.gone import answer_of_gone
from aliquot_scheduler.queues.telling.standing import Standing
from aliquot_scheduler.queues.telling.whole import answer
from aliquot_scheduler.queues.waiting.waiter import Waiter
from support.centre import NAMES, WALL, asks, bound, gpus, make_lease, make_node, picture_with

NODE = make_node("n1", gpus("n1", 4))
LEFT: Mapping[str, Any] = {"away": {"namespaces": ["*"]}, "lost": {"parent": "nobody", "namespaces": ["*"]}}
HAS = "Let those that wait name another, or"


def plan(queues: Mapping[str, Any] = LEFT) -> Plan:
    """A cluster's queues."""
    specs = [msgspec.convert({"metadata": {"name": name}, "spec": spec}, Queue) for name, spec in queues.items()]
    return plan_of(specs, [], names=NAMES)


def runs(uid: str, queue: str, *, gpu: int) -> Pod:
    """A pod that holds half a card."""
    return bound(asks(uid, 50, 1000, labels={NAMES.queue: queue}), node="n1", held={f"GPU-n1-{gpu}": (50, 1000)})


def waits(uid: str, queue: str) -> Pod:
    """A pod behind its gate."""
    return asks(uid, 50, 1000, labels={NAMES.queue: queue}, spec={"schedulingGates": [{"name": NAMES.gate}]})


PODS = (
    runs("r1", "bor", gpu=0),
    runs("r2", "bor", gpu=1),
    runs("r3", "lost", gpu=2),
    runs("r4", "away", gpu=3),
    waits("w1", "bor"),
    waits("w2", "named"),
    waits("w3", "away"),
)


def stand(*pods: Pod, of: Plan | None = None) -> Standing:
    """Everybody's standing on four cards."""
    picture = picture_with(NODE)
    for pod in pods:
        picture.pod_seen(pod)
    return Standing(picture=picture, plan=of or plan(), pods=pods, names=NAMES, wall=WALL)


def nothing_due(_: Waiter) -> str:
    """Nobody is told of a guarantee."""
    return ""


def told_of(name: str, *pods: Pod) -> QueueAnswer:
    """All that is told of a queue that is gone."""
    found = answer_of_gone(name, stand(*pods), due=nothing_due)
    assert found is not None
    return found


# By the name that is asked for: who runs on, who waits, what it comes to, and what became of each of the queues.
TOLD: dict[str, tuple[list[str], list[str], tuple[int, int, int | None], list[str]]] = {
    "bor": (
        ["pod-r1", "pod-r2"],
        ["pod-w1"],
        (2, 1, 100),
        [f"Queue bor was deleted: 2 pods run on, 1 waits and is in no line. {HAS} create it again."],
    ),
    "named": (
        [],
        ["pod-w2"],
        (0, 1, 0),
        [f"Queue named is not there: 0 pods run on, 1 waits and is in no line. {HAS} create it again."],
    ),
    "lost": (
        ["pod-r3"],
        [],
        (1, 0, 50),
        [f"Queue lost hangs on nothing: 1 pod runs on, 0 wait and are in no line. {HAS} mend its spec.parent."],
    ),
    NO_QUEUE: (["pod-r1", "pod-r2", "pod-r3"], ["pod-w1", "pod-w2"], (3, 2, 150), ["Queue bor", "Queue lost"]),
}


@pytest.mark.parametrize("name", TOLD)
def test_a_queue_that_is_gone_is_told_with_its_pods(name: str) -> None:
    """By its own name, and by that of its row in the table: who is charged to it, who names it, and what to do."""
    running, waiting, numbers, sentences = TOLD[name]
    told = told_of(name, *PODS)
    assert [one.pod.removeprefix("team/") for one in told.charged] == running
    assert [one.pod.removeprefix("team/") for one in told.pods] == waiting
    assert {one.reason for one in told.pods} <= {"NoQueue"}
    # They have no place, and may have one once they name another queue.
    assert {(one.place, one.never) for one in told.pods} <= {(0, False)}
    assert (told.row.running, told.row.waiting, told.row.compute.used) == numbers
    text = answer_text(told, wide=False, now=WALL).splitlines()
    assert [any(line.startswith(said) for line in text) for said in sentences] == [True] * len(sentences)
    assert [pod for pod in running if not any(f"{pod} " in line and "50 %, 1000 MiB" in line for line in text)] == []


def test_of_a_queue_that_nobody_names_nothing_is_told() -> None:
    """Nor of all of them, where every pod's is there: it is an error then."""
    there = stand(waits("w", "away"))
    assert [answer_of_gone(name, there, due=nothing_due) for name in ("bor", NO_QUEUE)] == [None, None]


def test_no_other_command_gets_the_name_of_a_queue_that_is_gone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its row's name is one that can be asked for, though no object bears it."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nobody-asks"))
    asked = []

    async def found(name: str, **_: object) -> QueueAnswer:
        asked.append(name)
        return told_of(name, *PODS)

    monkeypatch.setattr("aliquot_cli.queue._told", found)
    done = [CliRunner().invoke(main, ["queue", name, "-o", "name"]) for name in (NO_QUEUE, "bor", "(else)")]
    assert asked == [NO_QUEUE, "bor"]
    assert [(one.exit_code, one.stdout.strip()) for one in done] == [(0, ""), (0, ""), (2, "")]


def test_a_pod_whose_queue_is_gone_is_explained_so() -> None:
    """Not as one that never fits: with how many wait as it does, and which queues it may name."""
    pods = [waits("w1", "bor"), waits("w2", "bor")]
    told = explain(pods[0], nodes=[NODE], leases=[make_lease("n1")], pods=pods, names=NAMES, wall=WALL, plan=plan(LEFT))
    said = "there is no queue bor; pods of namespace team may name away, default (label aliquot.dev/queue)"
    assert (told.reason, told.summary) == ("NoQueue", said)
    text = explanation_text(told)
    assert "in no line, since it may not wait in this queue; 2 pods wait in this queue" in text


def test_a_queue_that_got_children_tells_of_the_pods_that_wait_in_it() -> None:
    """They are stuck there; those that wait below it are not."""
    of = plan({"own": {}, "in": {"parent": "own", "namespaces": ["*"]}})
    pods = [waits("w1", "own"), waits("w2", "own"), waits("w3", "in")]

    def text(*waiting: Pod) -> list[str]:
        told = answer("own", of, statuses={}, standing=stand(*waiting, of=of))
        return answer_text(told, wide=False, now=WALL).splitlines()

    below = "Pods wait in the queues below it."
    assert f"{below} 2 pods are here in no line: let them, or their namespaces, name one of those." in text(*pods)
    assert f"{below} 1 pod is here in no line: let it, or its namespace, name one of those." in text(*pods[1:])
    assert below in text(pods[2])
