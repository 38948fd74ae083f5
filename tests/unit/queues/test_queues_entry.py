"""Who may wait where, by the label of a namespace and by what a queue says."""

from __future__ import annotations

import msgspec
import pytest

from aliquot_core.names import Names
from aliquot_core.objects import Namespace, Queue
from aliquot_scheduler.queues.said.entry import open_to, plan_of, why_barred
from aliquot_scheduler.queues.telling.status import Amounts, QueueStatus, read_status

NAMES = Names()
QUEUES = {
    "org": {},
    "team-a": {"parent": "org"},
    "team-b": {"parent": "org", "namespaces": ["b-*", "shared"]},
    "astray": {"parent": "nowhere"},
}
PLAN = plan_of(
    [msgspec.convert({"metadata": {"name": name}, "spec": spec}, Queue) for name, spec in QUEUES.items()],
    [
        msgspec.convert({"metadata": {"name": name, "labels": labels}}, Namespace)
        for name, labels in {"a": {NAMES.queue: "team-a"}, "b-1": {}, "c": {"queue": "team-a"}}.items()
    ],
    names=NAMES,
)

WHY = {
    ("a", "team-a"): "",
    ("a", "team-b"): "queue team-b does not take pods of namespace a",
    ("a", "default"): "queue default does not take pods of namespace a",
    ("a", "org"): "queue org has queues below it, and pods wait only in those that have none",
    ("a", "astray"): "there is no queue astray",
    ("a", ""): "there is no queue ",
    ("b-1", "team-b"): "",
    ("b-1", "default"): "",
    ("b-1", "team-a"): "queue team-a does not take pods of namespace b-1",
    ("shared", "team-b"): "",
    ("c", "team-a"): "queue team-a does not take pods of namespace c",
}


@pytest.mark.parametrize(("namespace", "queue"), WHY)
def test_who_may_wait_where(namespace: str, queue: str) -> None:
    """At home, and where the queue says so; in leaves that hang on the tree."""
    why = why_barred(queue, tree=PLAN.tree, namespace=namespace, home=PLAN.home(namespace))
    assert why == WHY[namespace, queue]


@pytest.mark.parametrize(
    ("namespace", "queues"), [("a", ["team-a"]), ("b-1", ["default", "team-b"]), ("c", ["default"])]
)
def test_the_choice_is_told(namespace: str, queues: list[str]) -> None:
    """Exactly those that would not be barred."""
    assert open_to(namespace, tree=PLAN.tree, home=PLAN.home(namespace)) == queues


def test_a_status_is_read_as_it_is_written() -> None:
    """One that somebody else wrote in another way is none."""
    status = QueueStatus(used=Amounts(compute=250), fair_share=Amounts(compute=300, memory=5), waiting=3)
    raw = {"used": {"compute": 250}, "fairShare": {"compute": 300, "memory": 5}, "waiting": 3}
    assert msgspec.to_builtins(status)["used"] == {"compute": 250, "memory": 0}
    assert read_status(raw) == status
    assert read_status({}) is None
    assert read_status({"used": "much"}) is None
