"""What the webhook says of pods by the queues that there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from support.admitting import Json, answered, container, mutated, review, written
from support.queue_admission import Told, admission, plan

TREE = {
    "org": {"compute": {"limit": 300}},
    "a": {"parent": "org", "namespaces": ["team*"], "compute": {"guarantee": 100}},
    "b": {"parent": "org"},
    "held": {"stop": "hold", "namespaces": ["*"]},
    "drained": {"stop": "drain"},
    "below": {"parent": "drained", "namespaces": ["*"]},
}
PLACES: dict[str, tuple[str, Mapping[str, str], Mapping[str, str], str]] = {
    "no such queue": (
        "x",
        {"compute": "30"},
        {},
        "label aliquot.dev/queue: there is no queue x; write one of the queues a, default, held into the pod's label",
    ),
    "an inner queue": ("org", {"compute": "30"}, {}, "queue org has queues below it, and pods wait only in those"),
    "not for this namespace": (
        "b",
        {"compute": "30"},
        {},
        (
            "queue b does not take pods of namespace team; write one of the queues a, default, held into the pod's "
            "label aliquot.dev/queue; an operator can add namespace team to spec.namespaces of a queue, or label the "
            "namespace"
        ),
    ),
    "drained above": (
        "below",
        {"compute": "30"},
        {},
        "queue below takes no pods: queue drained above it is being drained; name another queue",
    ),
    "its namespace's is not there": (
        "",
        {"compute": "30"},
        {"team": "gone"},
        "label aliquot.dev/queue of namespace team: there is no queue gone; write one of the queues a,",
    ),
}


async def of_pod(body: bytes, told: Told) -> Json:
    """The answer to a pod."""
    return answered(await admission(told).validating(body))


def asking(queue: str = "", notes: Mapping[str, str] | None = None, **limits: Any) -> Json:
    """A pod of namespace `team` as the mutating endpoint leaves it."""
    return mutated(written(container(**limits), labels={"queue": queue} if queue else {}, notes=notes))


@pytest.mark.parametrize("row", PLACES)
async def test_a_pod_must_wait_where_it_may(row: str) -> None:
    """Told at once, with the choice it has."""
    queue, limits, homes, sentence = PLACES[row]
    now = plan(TREE, homes)
    answer = await of_pod(review(asking(queue, None, **limits)), Told(heard=now, now=now))
    assert answer["allowed"] is False
    assert sentence in answer["status"]["message"]


WARNED: dict[str, tuple[str, Mapping[str, str], Mapping[str, str], list[str]]] = {
    "all is well": ("a", {"compute": "300"}, {}, []),
    "at home": ("", {"compute": "30"}, {}, []),
    "held": (
        "held",
        {"compute": "30"},
        {},
        ["queue held lets nobody in for now: it is held"],
    ),
    "beyond a limit above": (
        "a",
        {"compute": "400", "memory": "60000"},
        {},
        ["it asks 400 % of compute, and queue org may never have more than 300 %: it waits until that is raised"],
    ),
    "beyond the guarantee": (
        "a",
        {"compute": "101"},
        {"preemptible": "false"},
        [
            (
                "it asks 101 % of compute never to be taken back, and queue a is guaranteed 100 %: "
                "it waits until that is raised"
            ),
        ],
    ),
    "within the guarantee": ("a", {"compute": "100", "memory": "30000"}, {"preemptible": "false"}, []),
    "no guarantee at all": (
        "",
        {"compute": "1"},
        {"preemptible": "false"},
        [
            (
                "it asks 1 % of compute never to be taken back, and queue default is guaranteed 0 %: "
                "it waits until that is raised"
            )
        ],
    ),
    "memory alone, and no guarantee at all": (
        "",
        {"memory": "500"},
        {"preemptible": "false"},
        [
            (
                "it asks 500 MiB of memory never to be taken back, and queue default is guaranteed 0 MiB: "
                "it waits until that is raised"
            )
        ],
    ),
}


@pytest.mark.parametrize("row", WARNED)
async def test_a_pod_that_can_wait_comes_in(row: str) -> None:
    """With a warning of what keeps it until an operator changes something; cut where the API server would complain."""
    queue, limits, notes, warnings = WARNED[row]
    answer = await of_pod(review(asking(queue, notes, **dict(limits))), Told(heard=plan(TREE), now=None))
    assert (answer["allowed"], answer.get("warnings", [])) == (True, warnings)


async def test_without_queues_nobody_is_told_to_wait_for_a_guarantee() -> None:
    """It is let in as all others are: there is no queue that could be guaranteed something."""
    answer = await of_pod(
        review(asking("", {"preemptible": "false"}, compute="30")), Told(heard=plan({}), now=plan({}))
    )
    assert (answer["allowed"], answer.get("warnings", [])) == (True, [])


async def test_a_queue_made_a_moment_ago_counts() -> None:
    """What was heard may be old: nobody is refused by it before the API server was asked."""
    told = Told(heard=plan({}), now=plan(TREE))
    assert (await of_pod(review(asking("a", compute="30")), told))["allowed"] is True
    assert (await of_pod(review(asking(compute="30")), told))["allowed"] is True
    assert told.questions == 1


async def test_a_pod_is_let_pass_when_nothing_was_heard_and_nobody_answers() -> None:
    """The centre judges it once more; what was heard still counts."""
    assert (await of_pod(review(asking("x", compute="30")), Told(heard=None, now=None)))["allowed"] is True
    assert (await of_pod(review(asking("x", compute="30")), Told(heard=plan({}), now=None)))["allowed"] is False


async def test_a_change_of_something_else_is_no_question_of_queues() -> None:
    """A pod whose queue is gone can still be annotated, and moved to one that is there; bound, nothing is asked."""
    told = Told(heard=plan(TREE), now=plan(TREE))
    gone = asking("gone", compute="30")
    noted = {**gone, "metadata": {**gone["metadata"], "annotations": {"x": "y"}}}
    assert (await of_pod(review(noted, old=gone), told))["allowed"] is True
    assert (await of_pod(review(asking("a", compute="30"), old=gone), told))["allowed"] is True
    assert (await of_pod(review(asking("b", compute="30"), old=gone), told))["allowed"] is False
    bound = written(container(compute="30"), labels={"queue": "b"}, nodeName="n1")
    answer = await of_pod(review(bound, old={**bound, "metadata": {**bound["metadata"], "labels": {}}}), told)
    assert "can't change any more" in answer["status"]["message"]
    assert "does not take" not in answer["status"]["message"]
    plain = written(container(), labels={"queue": "gone"})
    assert (await of_pod(review(plain), told))["allowed"] is True


async def test_without_queues_there_is_the_default_one() -> None:
    """Also where the definition of Queue is not installed."""
    told = Told(heard=plan({}), now=plan({}))
    assert (await of_pod(review(asking(compute="30")), told)) == {"allowed": True}
    assert (await of_pod(review(asking("default", compute="30")), told)) == {"allowed": True}
    assert (await of_pod(review(asking("a", compute="30")), told))["allowed"] is False
