"""A file replays to what all that there was replays to, though most of that is not in it: over random clusters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aliquot_core.disruptions import PodDisruptionBudget
from aliquot_core.instants import second_time
from aliquot_core.objects import Container, EnvVar, Pod, PodCondition, Queue
from aliquot_scheduler.in_force import InForce
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.rules.expressions import Expression, RuleSettings
from aliquot_scheduler.simulating.deciding import Replayed
from aliquot_scheduler.simulating.snapshot import Snapshot, packed, unpacked
from support.centre import NAMES, gpus, make_lease, make_node
from support.queue_scenarios import specs_of
from support.reclaim_stage import ReclaimStage

replace = msgspec.structs.replace

GRACE = 600.0
CARDS = (2, 2)
NODES = tuple(f"n{number}" for number in range(len(CARDS)))
# Who says by an annotation where it wants to lie; and one of labels, that reads nothing of what is left out.
RULES = {
    "": (),
    "by name": (Expression(name="on", refuse='pod.annotations[?"acme.io/on"].orValue(node.name) != node.name'),),
    "dearer": (Expression(name="dear", cost='pod.annotations[?"acme.io/on"].orValue("") == node.name ? 0.0 : 1.5'),),
}
QUEUES: Mapping[str, Mapping[str, Any]] = {
    "red": {"compute": {"guarantee": 200}, "preemption": {"withinQueue": "AnyUser"}},
    "blue": {"compute": {"guarantee": 100}, "preemption": {"minRunSeconds": 60}},
    "grey": {},
}


class Asking(msgspec.Struct, frozen=True, kw_only=True):
    """A pod, or a group of two, of a queue; `on` is the node that it asks for by an annotation of its users' own."""

    queue: str = "red"
    compute: int = 100
    pair: bool = False
    priority: int = 0
    firm: bool = False
    on: str = ""


class World(msgspec.Struct, frozen=True, kw_only=True):
    """Who was there first, and who came; budgets over what; for how long those who came were told that these keep."""

    runs: tuple[Asking, ...]
    waits: tuple[Asking, ...]
    # The queue whose pods it covers, and how many of them may go.
    budgets: tuple[tuple[str, int], ...] = ()
    told: float | None = None
    grace: float = 0.0
    rules: str = ""
    # For how long those run who do.
    ran: float = 120.0


ASKING = st.builds(
    Asking,
    queue=st.sampled_from(sorted(QUEUES)),
    compute=st.sampled_from((30, 50, 100, 200)),
    pair=st.booleans(),
    priority=st.sampled_from((0, 0, 7)),
    firm=st.booleans(),
    on=st.sampled_from(("", *NODES)),
)
WORLDS = st.builds(
    World,
    runs=st.lists(ASKING, max_size=6).map(tuple),
    waits=st.lists(ASKING, min_size=1, max_size=4).map(tuple),
    budgets=st.lists(st.tuples(st.sampled_from(sorted(QUEUES)), st.integers(0, 2)), max_size=2).map(tuple),
    told=st.sampled_from((None, 10.0, 2 * GRACE)),
    grace=st.sampled_from((0.0, GRACE)),
    rules=st.sampled_from(sorted(RULES)),
    ran=st.sampled_from((10.0, 120.0)),
)
BORROWS, OWNS = Asking(queue="grey"), Asking(queue="red")
KEPT = World(runs=(BORROWS,) * 4, waits=(OWNS,), budgets=(("grey", 0),), told=2 * GRACE, grace=GRACE)
RULED = World(runs=(), waits=(replace(OWNS, on="n1"), replace(OWNS, on="n0")), rules="by name")


def snapshot_of(world: World) -> Snapshot:
    """The cluster, with all that people put on their pods."""
    stage = ReclaimStage(specs_of(QUEUES), nodes=CARDS)
    for number, asking in enumerate(world.runs):
        _submit(stage, f"r{number}", asking)
    while stage.run(after=1.0):
        pass
    for uid in [uid for uid, pod in stage.pods.items() if not pod.spec.node_name]:
        stage.gone(uid)
    for number, asking in enumerate(world.waits):
        _submit(stage, f"w{number}", asking)
    pods = [_as_written(pod, world, wall=stage.wall) for pod in stage.pods.values()]
    said = ({"metadata": {"name": name}, "spec": {**spec, "namespaces": ["*"]}} for name, spec in QUEUES.items())
    return Snapshot(
        wall=stage.wall,
        names=NAMES,
        settings=InForce(
            queues=QueueSettings(budget_grace=world.grace), rules=RuleSettings(expressions=RULES[world.rules])
        ),
        nodes=[make_node(name, gpus(name, cards)) for name, cards in zip(NODES, CARDS, strict=True)],
        leases=[make_lease(name, renewed=second_time(stage.wall)) for name in NODES],
        pods=pods,
        queues=[msgspec.convert(one, Queue) for one in said],
        budgets=[_budget(number, *one) for number, one in enumerate(world.budgets)],
    )


def _submit(stage: ReclaimStage, name: str, asking: Asking) -> None:
    notes = {"preemptible": "false"} if asking.firm else {}
    notes |= {"group-size": "2"} if asking.pair else {}
    for twin in range(1 + asking.pair):
        more: dict[str, Any] = {"group": name if asking.pair else "", "priority": asking.priority, "notes": notes}
        pod = stage.submit(f"{name}.{twin}", asking.compute, queue=asking.queue, **more)
        if asking.on:
            noted = {**pod.metadata.annotations, "acme.io/on": asking.on}
            stage.see(replace(pod, metadata=replace(pod.metadata, annotations=noted)))


def _as_written(pod: Pod, world: World, *, wall: float) -> Pod:
    """As people and Kubernetes have written it, with secrets."""
    first = replace(pod.spec.containers[0], image="hush", env=[EnvVar(name="TOKEN", value="hush")])
    containers: list[Container] = [first, *pod.spec.containers[1:]]
    meta = replace(pod.metadata, annotations={**pod.metadata.annotations, "acme.io/token": "hush"})
    status = replace(pod.status, conditions=_conditions(pod, world, wall=wall))
    return replace(pod, metadata=meta, spec=replace(pod.spec, containers=containers), status=status)


def _conditions(pod: Pod, world: World, *, wall: float) -> list[PodCondition]:
    if pod.spec.node_name:
        at = second_time(wall - world.ran)
        return [PodCondition(type="PodScheduled", status="True", message="hush", last_transition_time=at)]
    gated = PodCondition(type="PodScheduled", status="False", reason="SchedulingGated", message="hush")
    if world.told is None:
        return [gated]
    message = "of hush 4 pods are kept by a budget (queues.budget_grace)"
    at = second_time(wall - world.told)
    admitted = PodCondition(
        type=NAMES.admitted, status="False", reason="NobodyGoes", message=message, last_transition_time=at
    )
    return [gated, admitted]


def _budget(number: int, queue: str, allowed: int) -> PodDisruptionBudget:
    said: Mapping[str, Any] = {
        "metadata": {"name": f"b{number}", "namespace": "team", "annotations": {"by": "hush"}},
        "spec": {"selector": {"matchLabels": {NAMES.queue: queue}}},
        "status": {"disruptionsAllowed": allowed},
    }
    return msgspec.convert(said, PodDisruptionBudget)


@given(WORLDS)
@example(KEPT)
@example(RULED)
@example(replace(RULED, rules="dearer"))
@settings(max_examples=60, deadline=None)
def test_a_file_replays_as_the_whole_does(world: World) -> None:
    """Who is let in, where, and who goes for whom; and nothing of what people keep to themselves is in it."""
    whole = snapshot_of(world)
    file = unpacked(packed(whole), where="memory")
    assert file.left_out == []
    assert b"hush" not in msgspec.json.encode(file)
    assert Replayed(file).decide() == Replayed(whole).decide()


def test_the_worlds_are_such_in_which_that_matters() -> None:
    """A budget was set aside by what a pod was told, and two lie where they asked to by an annotation."""
    (room,) = Replayed(snapshot_of(KEPT)).decide().room
    assert len(room.victims) == 1
    assert Replayed(snapshot_of(replace(KEPT, told=None))).decide().room == []
    assert [one.gpus[0].partition("/")[0] for one in Replayed(snapshot_of(RULED)).decide().let_in] == ["n1", "n0"]
