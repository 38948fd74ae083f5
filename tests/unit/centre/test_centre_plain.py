"""Pods without slices are graded by what they take from GPUs, where kube-scheduler asks for that."""

from __future__ import annotations

import msgspec
import pytest

from aliquot_core.objects import Node, Pod
from aliquot_scheduler.deciding.appraiser import Appraiser
from aliquot_scheduler.deciding.desk import Desk
from aliquot_scheduler.extender.decisions import BEST_GRADE
from aliquot_scheduler.queues.turns import Queues
from support.centre import NAMES, asks, gpus, make_node, make_pod, picture_with


def node(name: str, *, cards: int, cpu: int) -> Node:
    """With so many cores."""
    made = make_node(name, gpus(name, cards))
    made.status.allocatable["cpu"] = str(cpu)
    return made


def plain(uid: str, *, cpu: int, on: str = "") -> Pod:
    """A pod that asks for cores alone, bound where that is said."""
    pod = make_pod(uid, {"name": "main", "resources": {"requests": {"cpu": str(cpu)}}})
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=on)) if on else pod


class Office:
    """A desk that values places."""

    def __init__(self, *nodes: Node) -> None:
        self.picture = picture_with(*nodes)
        self.appraiser = Appraiser(picture=self.picture, names=NAMES)
        turns = Queues(names=NAMES, random=lambda: 0.5, picture=self.picture)
        self.desk = Desk(picture=self.picture, names=NAMES, turns=turns, look=self.appraiser.look)

    def grades(self, pod: Pod, *nodes: str) -> dict[str, int]:
        """As kube-scheduler is told them, by node."""
        return dict(zip(nodes, self.desk.prioritize_plain(pod, nodes), strict=True))


def test_cores_beside_idle_gpus_are_kept() -> None:
    """A node with cores to spare is the better one, one without GPUs the best."""
    office = Office(node("scarce", cards=8, cpu=32), node("ample", cards=1, cpu=96))
    found = office.grades(plain("p", cpu=24), "scarce", "ample")
    assert found["ample"] == BEST_GRADE
    assert found["scarce"] < BEST_GRADE - 50
    found = office.grades(plain("p", cpu=24), "scarce", "ample", "never-heard-of", "nor-of-that")
    assert found["never-heard-of"] == found["nor-of-that"] == BEST_GRADE
    assert found["scarce"] < found["ample"] < BEST_GRADE


def test_the_best_of_many_that_are_nearly_equal_is_one_better() -> None:
    """Grades are whole numbers, and kube-scheduler draws among equals: the fullest node is to be filled."""
    names = [f"n{number}" for number in range(20)]
    office = Office(*(node(name, cards=0 if number else 1, cpu=400) for number, name in enumerate(names)))
    office.picture.pod_lies(plain("old", cpu=30, on="n7"))
    found = office.grades(plain("p", cpu=1), *names[1:])
    assert found.pop("n7") == BEST_GRADE
    assert set(found.values()) == {BEST_GRADE - 1}


@pytest.mark.parametrize("nodes", [(), ("n1",), ("elsewhere",)])
def test_few_nodes_or_none_are_graded_too(nodes: tuple[str, ...]) -> None:
    """Whatever is asked is answered."""
    office = Office(node("n1", cards=1, cpu=8))
    assert office.grades(plain("p", cpu=1), *nodes) == dict.fromkeys(nodes, BEST_GRADE)


def test_pods_with_slices_are_graded_elsewhere() -> None:
    """Or they would count twice; so it is with a request that can't be meant, and where places have no value."""
    office = Office(node("n1", cards=1, cpu=8))
    bad = make_pod("bad", {"name": "main", "resources": {"limits": {NAMES.compute: "-1"}}})
    for pod in (asks("u", 30, 1_000), bad):
        assert office.grades(pod, "n1") == {"n1": 0}
    turns = Queues(names=NAMES, random=lambda: 0.5, picture=office.picture)
    without = Desk(picture=office.picture, names=NAMES, turns=turns)
    assert without.prioritize_plain(plain("p", cpu=1), ["n1"]) == [0]
