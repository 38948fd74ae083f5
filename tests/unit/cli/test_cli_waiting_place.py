"""Where in its queue a pod stands, in a sentence."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from aliquot_cli.waiting_place import _sentence
from aliquot_core.objects import Pod, Queue
from aliquot_scheduler.queues.said.entry import plan_of
from aliquot_scheduler.queues.telling.standing import Standing
from support.centre import NAMES, WALL, asks, bound, gpus, make_node, picture_with

NODES = (make_node("n1", gpus("n1", 1)),)
GATED = {"schedulingGates": [{"name": NAMES.gate}]}


def waits(name: str, queue: str, *, at: int) -> Pod:
    """A pod behind its gate."""
    return asks(
        name,
        50,
        1000,
        labels={NAMES.queue: queue},
        creationTimestamp=f"2026-11-21T09:{at:02}:00Z",
        spec=GATED,
    )


def standing(*pods: Pod, queues: Sequence[str]) -> Standing:
    """Everybody's standing on one card."""
    made = [msgspec.convert({"metadata": {"name": name}, "spec": {"namespaces": ["*"]}}, Queue) for name in queues]
    plan = plan_of(made, [], names=NAMES)
    return Standing(picture=picture_with(*NODES), plan=plan, pods=pods, names=NAMES, wall=WALL)


def test_the_place_is_told_in_the_queue_and_among_all() -> None:
    """Those of other queues count too, since they may go first."""
    pods = [waits("a1", "a", at=1), waits("b1", "b", at=2), waits("a2", "a", at=3)]
    told = [_sentence(pod, standing(*pods, queues=["a", "b"])) for pod in pods]
    assert told[0] == "place 1 in queue a"
    assert sorted(told[1:]) == ["place 1 in queue b, 2 of all that wait", "place 2 in queue a, 3 of all that wait"]


def test_without_queues_there_is_one_line() -> None:
    """Whoever came first."""
    pods = [waits("a1", "", at=1), waits("a2", "", at=3)]
    assert _sentence(pods[1], standing(*pods, queues=[])) == "place 2 of all that wait"


def test_who_stands_in_no_line_has_no_place() -> None:
    """It asks for more than there is, or is placed already: why is told by its condition."""
    huge = asks("huge", 900, 1000, spec=GATED)
    placed = bound(asks("b", 50, 1000), node="n1", held={"GPU-n1-0": (50, 1000)})
    assert [_sentence(pod, standing(huge, placed, queues=[])) for pod in (huge, placed)] == ["", ""]
