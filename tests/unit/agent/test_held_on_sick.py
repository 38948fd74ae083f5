"""What pods hold on sick GPUs is told beside the healthy ones, and goes with each of them that ends."""

from __future__ import annotations

import msgspec
import pytest

from aliquot_agent.pods.bound_pods import BoundPods
from aliquot_agent.publishing.node_object import patches
from aliquot_agent.signal import Signal
from aliquot_agent.starting.device_ids import device_tables
from aliquot_core.held_on_sick import Held, held_on_sick
from aliquot_core.inventory import Inventory
from aliquot_core.objects import Pod
from aliquot_kube.changes import Added, Synced
from support.centre import MEMORY, NAMES, asks, bound, gpus, make_node, sick

replace = msgspec.structs.replace
WELL, ILL = gpus("n1", 2)
CARDS = Inventory(gpus=(WELL, sick(ILL)))
# An agent that starts does not find what was lost before.
LOST = Inventory(gpus=(WELL,))


def on(pod: Pod, **held: tuple[int, int]) -> Pod:
    """The pod bound with so much of the healthy GPU and of the sick one."""
    uuids = {"well": WELL.uuid, "ill": ILL.uuid}
    return bound(pod, node="n1", held={uuids[which]: amounts for which, amounts in held.items()})


PART = on(asks("part", 50, 6_000), ill=(50, 6_000))
CASES: dict[str, tuple[list[Pod], Held]] = {
    "nobody": ([], Held()),
    "a part of it": ([PART], Held(50, 6_000)),
    "two": ([PART, on(asks("two", 30, 500), ill=(30, 500))], Held(80, 6_500)),
    "on the healthy one": ([on(asks("p", 50, 6_000), well=(50, 6_000))], Held()),
    "over both": ([on(asks("p", 150, 9_000), ill=(100, 6_000), well=(50, 3_000))], Held(100, 6_000)),
    "memory left out": ([on(asks("p", 50, None), ill=(50, MEMORY // 2))], Held(50, 0)),
    "best effort": ([on(asks("p", None, 700), ill=(0, 700))], Held(0, 700, 1)),
    "it has ended": ([replace(PART, status=replace(PART.status, phase="Succeeded"))], Held()),
    "without a grant": ([asks("p", 50, 6_000, node="n1")], Held()),
    "with another's": ([replace(PART, metadata=replace(PART.metadata, uid="other"))], Held()),
}


@pytest.mark.parametrize("case", CASES)
def test_so_much_is_held_on_the_sick_one(case: str) -> None:
    """As kube-scheduler counts it: what pods ask, and not what they were granted beside that; be it listed or lost."""
    pods, expected = CASES[case]
    for cards in (CARDS, LOST):
        assert held_on_sick(pods, inventory=cards, names=NAMES).get(ILL.uuid, Held()) == expected


def test_it_is_not_known_before_all_pods_are() -> None:
    """The list of an agent that begins may be under way."""
    pods = BoundPods(changed=Signal())
    pods.take(Added(new=PART))
    assert pods.on_sick(CARDS, names=NAMES) is None
    pods.take(Synced(resource_version="1"))
    assert pods.on_sick(CARDS, names=NAMES) == {ILL.uuid: Held(50, 6_000)}


def test_where_all_are_well_nothing_is_told_beside_them() -> None:
    """What is held there is of what there is."""
    assert not held_on_sick([PART], inventory=Inventory(gpus=(WELL, ILL)), names=NAMES)


def test_the_kubelet_is_told_so_many_ids_more() -> None:
    """The last ones of the sick GPU: who holds a part of it mostly has the first, which stay unhealthy."""
    held = {ILL.uuid: Held(compute=30, best_effort=1)}
    tables = device_tables(CARDS, names=NAMES, best_effort_slots=4, held=held)
    healthy = {name: [one.healthy for one in devices] for name, devices in tables.items()}
    assert healthy == {
        NAMES.compute: [True] * 100 + [False] * 70 + [True] * 30,
        NAMES.best_effort: [True] * 4 + [False] * 3 + [True],
    }
    assert device_tables(LOST, names=NAMES, best_effort_slots=4, held=held) == tables


def test_nothing_is_taken_back_before_the_pods_are_known() -> None:
    """The kubelet would fail for good who is admitted meanwhile, and the node would say less for a moment."""
    tables = device_tables(CARDS, names=NAMES, best_effort_slots=4, held=None)
    assert all(one.healthy for devices in tables.values() for one in devices)
    unknown = patches(make_node("n1", [WELL, sick(ILL)]), inventory=LOST, names=NAMES, held=None)
    assert unknown.metadata is not None
    assert unknown.status is None


def test_the_node_s_memory_has_it_too() -> None:
    """And no more of it once the pod has gone."""
    node = make_node("n1", [WELL, sick(ILL)])
    held = patches(node, inventory=CARDS, names=NAMES, held={ILL.uuid: Held(memory=6_000)})
    assert held.status == {"status": {"capacity": {NAMES.memory: str(MEMORY + 6_000)}}}
    alone = patches(node, inventory=CARDS, names=NAMES)
    assert alone.status == {"status": {"capacity": {NAMES.memory: str(MEMORY)}}}
