"""From the picture to what is shown: true at each look, and cheap where nothing has changed."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot_core.claims import Claim
from aliquot_core.names import Names
from aliquot_core.objects import OwnerReference, Pod, PodCondition
from aliquot_core.quantities import MiB, Percent
from aliquot_scheduler.page.amounts import held_beside
from aliquot_scheduler.page.cluster_view import ClusterView, gpu_view, node_view, totals
from aliquot_scheduler.page.drawing import Drawing
from aliquot_scheduler.page.looking import Looking, Seen
from aliquot_scheduler.page.model import GpuShown, Owner, Stage, State
from aliquot_scheduler.page.owners import owner_of
from aliquot_scheduler.page.usage import Usage, Use
from aliquot_scheduler.picture.signs import SILENT, UNHEARD
from support.centre import asks, gpus, make_node, sick
from support.page_stage import PageStage
from support.queue_stage import queue
from support.queue_world import STEPS, QueueWorld

NAMES = Names()
NOTHING = Usage()
replace = msgspec.structs.replace


def looked(looking: Looking, seen: Seen | None, usage: Usage = NOTHING) -> State:
    """One look, all its steps."""
    assert seen is not None
    steps = looking.look(seen, usage)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            state: State = done.value
            return state


@pytest.fixture
def stage() -> PageStage:
    """Three GPUs on two nodes, a pod that runs, one that was let in, and one that waits."""
    stage = PageStage({"red": queue(guarantee=100, limit=200), "blue": queue()}, nodes=(2, 1))
    stage.submit("runs", 60, 20_000, queue="red")
    stage.run()
    stage.submit("coming", 30, 1_000, queue="blue")
    stage.round(after=1.0)
    stage.submit("waits", 250, 1_000, queue="red")
    stage.round(after=1.0)
    return stage


@pytest.fixture
def looking() -> Looking:
    """Somebody who has seen nothing yet."""
    return Looking(names=NAMES)


def gpu(state: State, node: str, index: int) -> GpuShown:
    """One of those shown."""
    return next(one for shown in state.nodes if shown.name == node for one in shown.gpus if one.index == index)


def test_pods_are_shown_by_how_far_they_have_come(stage: PageStage, looking: Looking) -> None:
    """Each with its queue, what it asks, and where it lies."""
    pods = {pod.uid: pod for pod in looked(looking, stage.seen()).pods}
    assert {uid: (pod.stage, pod.queue, pod.compute, pod.node) for uid, pod in pods.items()} == {
        "runs": (Stage.RUNNING, "red", 60, "n0"),
        "coming": (Stage.LET_IN, "blue", 30, ""),
        "waits": (Stage.WAITING, "red", 250, ""),
    }
    stage.change("runs", lambda pod: replace(pod, status=replace(pod.status, phase="Running")))
    assert {pod.uid: pod.stage for pod in looked(looking, stage.seen()).pods}["runs"] is Stage.RUNNING


def test_gpus_show_what_is_granted_and_what_is_promised(stage: PageStage, looking: Looking) -> None:
    """Room that is kept for a pod on its way is shown as held by it."""
    state = looked(looking, stage.seen())
    slices = [(one.pod, one.stage, one.compute, one.memory) for one in gpu(state, "n0", 0).slices]
    assert slices == [("team/pod-coming", Stage.LET_IN, 30, 1_000), ("team/pod-runs", Stage.RUNNING, 60, 20_000)]
    assert (gpu(state, "n0", 0).compute, gpu(state, "n0", 0).memory) == (90, 21_000)
    assert state.totals.compute_granted == 90
    assert (state.totals.gpus, state.totals.waiting, state.totals.running) == (3, 1, 1)


def test_what_is_held_without_a_grant_is_told_beside_what_looks_free(stage: PageStage, looking: Looking) -> None:
    """On its node, on each of that node's GPUs and in the sums; and no more once it is gone."""

    def drawn() -> list[str]:
        state = looked(looking, stage.seen())
        uuid = gpu(state, "n0", 1).uuid
        views = ClusterView().view(state), node_view("n0", state), gpu_view("n0", uuid, state)
        return [view.body() for view in views]

    stray = asks("stray", 50, 8_000, spec={"nodeName": "n0"})
    stage.picture.pod_seen(stray)
    state = looked(looking, stage.seen())
    assert {node.name: [(one.pod, one.compute, one.memory) for one in node.strays] for node in state.nodes} == {
        "n0": [("team/pod-stray", 50, 8_000)],
        "n1": [],
    }
    assert (state.totals.compute_stray, state.totals.memory_stray) == (50, 8_000)
    told = "team/pod-stray holds 50 % of compute, 7.8 GiB of this node without a grant"
    assert all(told in view for view in drawn())
    assert "0.9 of 3.0 GPUs, 0.5 without a grant" in drawn()[0]
    stage.picture.pod_gone(stray)
    assert not any("without a grant" in view for view in drawn())


def test_a_grant_of_a_later_version_is_told_as_that(stage: PageStage, looking: Looking) -> None:
    """Nobody is told to delete its pod."""
    stray = asks("stray", 50, 8_000, spec={"nodeName": "n0"}, annotations={NAMES.grant: '{"v":2}'})
    stage.picture.pod_seen(stray)
    told = held_beside(looked(looking, stage.seen()).nodes[0].strays)
    assert "this node by grants that a later version of Aliquot wrote" in told
    assert told.endswith("install that version again")


def test_who_waits_is_shown_with_the_reason(stage: PageStage, looking: Looking) -> None:
    """The queue's own words; and of one that was let in, kube-scheduler's."""
    waiting = {one.pod: one for one in looked(looking, stage.seen()).waiting}
    assert waiting["team/pod-waits"].reason == "NeverFits"
    assert waiting["team/pod-coming"].reason == "Placing"
    said = PodCondition(type="PodScheduled", status="False", message="no CPU")
    stage.change("coming", lambda pod: replace(pod, status=replace(pod.status, conditions=[said])))
    again = {one.pod: one for one in looked(looking, stage.seen()).waiting}
    assert again["team/pod-coming"].why == "no CPU"


def told_of(stage: PageStage, uid: str) -> str:
    """What the page says of a pod, to somebody who looks for the first time."""
    state = looked(Looking(names=NAMES), stage.seen())
    view = Drawing(names=NAMES).view(("pods", "team", f"pod-{uid}"), state, pods=stage.by_key, samples=())
    assert view is not None
    return view.body()


def test_who_waits_is_told_its_place_and_how_long_others_waited(stage: PageStage) -> None:
    """By its own page: among those of its user, and of those of its queue that were placed; nobody else is."""
    stage.submit("next", 250, 1_000, queue="red")
    stage.round(after=1.0)
    assert "1 of 2 of user team; 2 wait in queue red" in told_of(stage, "waits")
    among_all = "among all: aliquot explain -n team pod-next"
    assert f"2 of 2 of user team; 2 wait in queue red; {among_all}" in told_of(stage, "next")
    assert "Usual wait" not in told_of(stage, "next")
    assert "Place" not in told_of(stage, "coming").replace("Placing", "")
    placed = PodCondition(type="PodScheduled", status="True", last_transition_time="2026-11-21T10:00:42Z")
    stage.change("runs", lambda pod: with_condition(pod, placed, created="2026-11-21T10:00:00Z"))
    assert "the last pod of this queue waited 42 s" in told_of(stage, "waits")
    assert "Usual wait" not in told_of(stage, "coming")


def with_condition(pod: Pod, condition: PodCondition, *, created: str) -> Pod:
    """The pod with one condition, made at that time."""
    return replace(
        pod,
        metadata=replace(pod.metadata, creation_timestamp=created),
        status=replace(pod.status, conditions=[condition]),
    )


def test_queues_are_shown_with_what_they_are_due(stage: PageStage, looking: Looking) -> None:
    """Guarantee and limit of the tree, use and fair share of the books."""
    red = next(row for row in looked(looking, stage.seen()).queues if row.name == "red")
    assert (red.compute.guarantee, red.compute.limit, red.compute.used, red.compute.borrowed) == (100, 200, 60, 0)


def test_what_has_not_changed_is_the_same_object(stage: PageStage, looking: Looking) -> None:
    """So that who draws need not compare, and nothing is made anew for each look."""
    first = looked(looking, stage.seen())
    second = looked(looking, stage.seen())
    assert all(old is new for old, new in zip(first.nodes, second.nodes, strict=True))
    assert all(old is new for old, new in zip(first.pods, second.pods, strict=True))
    stage.gone("coming")
    third = looked(looking, stage.seen())
    assert [old is new for old, new in zip(first.nodes, third.nodes, strict=True)] == [False, True]
    assert gpu(third, "n0", 0) is not gpu(first, "n0", 0)
    assert gpu(third, "n0", 1) is gpu(first, "n0", 1)


def test_another_amount_of_the_same_holder_is_seen(stage: PageStage, looking: Looking) -> None:
    """A promise may be made anew on the same GPU."""
    looked(looking, stage.seen())
    stage.picture.hold("runs", {("n0", "GPU-n0-0"): Claim(compute=Percent(10), memory=MiB(500))})
    assert (gpu(looked(looking, stage.seen()), "n0", 0).compute) == 40


def test_use_is_shown_where_it_is_known(stage: PageStage, looking: Looking) -> None:
    """By GPU and by slice; unknown is not zero."""
    before = looked(looking, stage.seen())
    assert (before.used_at, before.totals.compute_used, gpu(before, "n0", 0).used_compute) == (None, None, None)
    uuid = "GPU-n0-0"
    usage = Usage(
        at=9.0,
        gpus={("n0", uuid): Use(compute=50, memory=900)},
        slices={("n0", uuid, "team/pod-runs"): Use(compute=48, memory=800)},
    )
    state = looked(looking, stage.seen(), usage)
    of = {one.pod: (one.used_compute, one.used_memory) for one in gpu(state, "n0", 0).slices}
    assert of == {"team/pod-runs": (48, 800), "team/pod-coming": (None, None)}
    assert (state.used_at, state.totals.compute_used, state.totals.memory_used) == (9.0, 50, 900)


def test_who_uses_more_than_granted_is_named_at_his_queue(stage: PageStage, looking: Looking) -> None:
    """And on the pod's own page, as far as its node has come; other queues and pods bear no such words."""
    uuid = "GPU-n0-0"
    beyond = Use(memory=30_000, over_use="warn", unpaid=3, since=5.0, most_memory=31_000, high_compute=60)
    usage = Usage(
        at=9.0, slices={("n0", uuid, "team/pod-runs"): beyond, ("n0", uuid, "team/pod-coming"): Use(memory=1)}
    )
    state = looked(looking, stage.seen(), usage)
    (told,) = (one for one in gpu(state, "n0", 0).slices if one.over_use)
    assert (told.pod, told.used_since, told.most_memory, told.high_compute) == ("team/pod-runs", 5.0, 31_000, 60)
    assert told.unpaid_launches == 3
    drawing = Drawing(names=NAMES)
    view = drawing.view(("queues",), state, pods=stage.by_key, samples=())
    assert view is not None
    regions = view.regions()
    for name in ("queues-compute", "queues-memory"):
        assert "more than granted: team/pod-runs<" in regions[name]["red"]
        named = {queue: "more than granted" in row for queue, row in regions[name].items()}
        assert named == {"red": True, "blue": False, "default": False}
    for pod, words in (("pod-runs", True), ("pod-coming", False)):
        page = drawing.view(("pods", "team", pod), state, pods=stage.by_key, samples=())
        assert page is not None
        assert ("its node has come to: warn" in page.body()) == words


def test_what_is_sick_or_out_is_shown_as_such(stage: PageStage, looking: Looking) -> None:
    """With the reason, and not counted as what there is to give."""
    cards = list(gpus("n1", 1))
    stage.picture.node_seen(make_node("n1", [sick(cards[0])], cordoned=True))
    state = looked(looking, stage.seen())
    assert (gpu(state, "n1", 0).reason, state.nodes[1].out) == ("XID 79", "the node is cordoned")
    assert (state.totals.gpus, state.totals.gpus_sick, state.totals.compute, state.totals.nodes_out) == (3, 1, 200, 1)


def test_a_pod_that_has_ended_is_still_told_of(stage: PageStage, looking: Looking) -> None:
    """It holds nothing any more, but what it had is known as long as its object is there."""
    looked(looking, stage.seen())
    stage.change("runs", lambda pod: replace(pod, status=replace(pod.status, phase="Succeeded")))
    state = looked(looking, stage.seen())
    ended = next(pod for pod in state.pods if pod.uid == "runs")
    assert (ended.stage, ended.phase, ended.compute, ended.queue) == (Stage.ENDED, "Succeeded", 60, "red")
    assert [one.pod for one in gpu(state, "n0", 0).slices] == ["team/pod-coming"]


def test_evictions_are_those_that_the_centre_has_counted(stage: PageStage, looking: Looking) -> None:
    """However few of the pods a look has still found; by what for, and unknown where nobody tells."""
    assert looked(looking, stage.seen()).totals.evicted == 0
    stage.evicted.update({"for others": 50, "for over-use": 6, "to be placed elsewhere": 0})
    state = looked(looking, stage.seen())
    assert state.totals.evicted == 56
    assert "50 for others, 6 for over-use; since" in str(totals(state)["evicted"])
    seen = stage.seen()
    assert seen is not None
    unknown = looked(looking, replace(seen, evicted=None))
    assert unknown.totals.evicted is None
    assert "unknown" in str(totals(unknown)["evicted"])


def test_while_the_api_server_is_not_heard_nobody_else_is_blamed(stage: PageStage, looking: Looking) -> None:
    """Nodes of whom nothing can be heard are not out, and whoever waits is told what keeps everybody."""
    stage.deaf = "the API server has not been heard for 9 s"
    for known, out in zip(stage.picture.nodes.values(), (UNHEARD, SILENT), strict=True):
        known.out = out
    state = looked(looking, stage.seen())
    assert state.paused == stage.deaf
    assert (state.totals.nodes_out, state.totals.nodes_unheard) == (1, 1)
    assert "1 out, 1 not heard of" in str(totals(state)["nodes"])
    assert [(one.pod, one.reason) for one in state.waiting if one.reason != "Placing"] == [
        ("team/pod-waits", "Unheard")
    ]
    assert state.waiting[0].why.startswith(stage.deaf)
    stage.deaf = ""
    assert looked(looking, stage.seen()).waiting[0].reason != "Unheard"


def test_of_a_gpu_that_a_pod_has_alone_nothing_is_free(stage: PageStage, looking: Looking) -> None:
    """Neither what memory it did not ask for."""
    stage.submit("alone", 100, 1_000, queue="blue")
    stage.run(after=1.0)
    state = looked(looking, stage.seen())
    alone = next(one for node in state.nodes for one in node.gpus if any(part.whole for part in one.slices))
    shared = gpu(state, "n0", 0)
    bodies = [gpu_view(one.node, one.uuid, state).body() for one in (alone, shared)]
    assert ["<dt>Free memory</dt><dd>0 (alone)</dd>" in body for body in bodies] == [True, False]
    assert alone.size > alone.memory


def test_pods_that_ask_nothing_are_not_shown(stage: PageStage, looking: Looking) -> None:
    """The page is about slices."""
    plain = asks("plain", 10, 10)
    bare = [replace(one, resources=type(one.resources)()) for one in plain.spec.containers]
    stage.by_key["team/plain"] = replace(plain, spec=replace(plain.spec, containers=bare))
    assert "plain" not in {pod.uid for pod in looked(looking, stage.seen()).pods}


@pytest.mark.parametrize(
    ("owners", "labels", "owner"),
    [
        ([], {}, ("Pod", "pod-x")),
        ([], {"aliquot.dev/group": "band"}, ("Group", "band")),
        ([("Job", "train", True)], {"aliquot.dev/group": "band"}, ("Job", "train")),
        ([("ReplicaSet", "web-5d4f", True)], {"pod-template-hash": "5d4f"}, ("Deployment", "web")),
        ([("ReplicaSet", "web-5d4f", True)], {}, ("ReplicaSet", "web-5d4f")),
        ([("Thing", "other", False)], {}, ("Pod", "pod-x")),
    ],
)
def test_a_pod_is_put_to_its_workload(
    owners: list[tuple[str, str, bool]], labels: dict[str, str], owner: tuple[str, str]
) -> None:
    """The controller, a Deployment by its own name; else the group; else the pod."""
    references = [OwnerReference(kind=kind, name=name, controller=controls) for kind, name, controls in owners]
    pod = asks("x", 10, 10, labels=labels)
    pod = replace(pod, metadata=replace(pod.metadata, owner_references=references))
    kind, name = owner
    assert owner_of(pod, names=NAMES) == Owner(namespace="team", kind=kind, name=name)


class LookedAt(QueueWorld):
    """A world in which everything happens, and somebody looks now and then."""

    def seen(self) -> Seen:
        """What there is."""
        pods = {pod.key: pod for pod in self.pods.values()}
        return Seen(
            picture=self.picture, turns=self.queues, pods=pods, paused="", deaf="", evicted=None, now=self.now, wall=0.0
        )


@given(seed=st.integers(0, 2**32))
@settings(max_examples=25)
def test_who_looked_before_sees_what_a_newcomer_sees(seed: int) -> None:
    """Whatever happens between two looks, nothing that was remembered is shown in place of what is."""
    world, looking = LookedAt(), Looking(names=NAMES)
    world.chance = random.Random(seed)
    steps = list(STEPS)
    for _ in range(40):
        world.chance.choices(steps, weights=list(STEPS.values()))[0](world)
        if world.chance.random() < 0.4:
            seen = world.seen()
            state = looked(looking, seen)
            fresh = looked(Looking(names=NAMES), seen)
            assert state.nodes == fresh.nodes
            assert state.waiting == fresh.waiting
            assert {pod.uid: pod for pod in state.pods if pod.stage is not Stage.ENDED} == {
                pod.uid: pod for pod in fresh.pods if pod.stage is not Stage.ENDED
            }
            for node in state.nodes:
                for one in node.gpus:
                    held, _ = world.picture.holdings.total((node.name, one.uuid))
                    assert (one.compute, one.memory) == (held.compute.value, held.memory.value)
