"""Grades: how good each node is for a pod, as kube-scheduler is told."""

from __future__ import annotations

from aliquot_core.objects import Pod
from aliquot_scheduler.deciding.desk import Desk
from aliquot_scheduler.queues.turns import Queues
from support.centre import NAMES, WALL, asks, bound, gpus, make_lease, make_node, picture_with


def make_desk(*nodes: str) -> Desk:
    """A desk that knows these nodes, two GPUs each."""
    picture = picture_with(*(make_node(name, gpus(name, 2)) for name in nodes))
    turns = Queues(names=NAMES, random=lambda: 0.5, picture=picture)
    return Desk(picture=picture, names=NAMES, turns=turns)


def graded(desk: Desk, pod: Pod, nodes: list[str]) -> dict[str, int]:
    """As kube-scheduler is told them, by node."""
    return dict(zip(nodes, desk.prioritize(pod, nodes), strict=True))


def test_the_node_where_room_is_promised_is_one_better_than_its_equals_and_all_come_in_the_order_asked() -> None:
    """kube-scheduler draws among equals: without it two halves of one card would part."""
    desk = make_desk("n1", "n2", "n3")
    pod = asks("u", 50, 30_000)
    assert list(desk.filter(pod, ["n3", "n2", "n1"], now=0.0).nodes) == ["n3", "n2", "n1"]
    promise = desk.promises.of("u")
    assert promise is not None
    grades = graded(desk, pod, ["n1", "n2", "n3"])
    others = {grade for node, grade in grades.items() if node != promise.node}
    assert others == {grades[promise.node] - 1}


def test_a_node_that_is_fuller_where_the_pod_fits_has_the_better_grade() -> None:
    """The best fit is on the card that is used already."""
    desk = make_desk("n1", "n2")
    desk.pod_seen(bound(asks("old", 50, 40_000), node="n2", held={"GPU-n2-0": (50, 40_000)}))
    pod = asks("u", 50, 40_000)
    desk.filter(pod, ["n1", "n2"], now=0.0)
    grades = graded(desk, pod, ["n1", "n2"])
    assert grades["n2"] > grades["n1"] > 0


def test_nodes_that_came_after_the_filter_call_have_no_grade_however_many_they_are() -> None:
    """What was found for the pod says nothing of them, and the picture has grown beyond it."""
    desk = make_desk("n1")
    pod = asks("u", 50, 30_000)
    desk.filter(pod, ["n1"], now=0.0)
    late = [f"late-{number}" for number in range(200)]
    for name in late:
        desk.finder._picture.node_seen(make_node(name, gpus(name, 2)))
        desk.finder._picture.lease_seen(make_lease(name), wall=WALL)
    grades = graded(desk, pod, ["n1", *late, "never-heard-of"])
    assert grades.pop("n1") > 0
    assert set(grades.values()) == {0}
    assert len(grades) == len(late) + 1
