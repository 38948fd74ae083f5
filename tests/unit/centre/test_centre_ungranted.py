"""A pod that is bound without a grant lies on no GPU, but kube-scheduler counts what it asks: so does the centre."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec
import pytest

from aliquot_core.inventory import Gpu
from aliquot_core.objects import Pod, PodCondition, Queue, Taint
from aliquot_core.request import PodRequest, parse_request
from aliquot_scheduler.explaining import explain
from aliquot_scheduler.fit.demand import demand_of
from aliquot_scheduler.fit.finder import Finder
from aliquot_scheduler.fit.finding import NodeCause
from aliquot_scheduler.fit.ground import host_ask
from aliquot_scheduler.fit.obstacles import Obstacles
from aliquot_scheduler.queues.said.entry import plan_of
from aliquot_scheduler.queues.said.spec import QueueSpec
from aliquot_scheduler.queues.telling.notices import Gist
from support.centre import (
    MEMORY,
    NAMES,
    WALL,
    Asked,
    asks,
    bound,
    counting,
    gpus,
    make_lease,
    make_node,
    picture_with,
)
from support.counting_stage import counted, said, staged
from support.queue_stage import GATED, Stage, queue
from support.reclaim_stage import ReclaimStage

replace = msgspec.structs.replace
A_QUEUE = {"metadata": {"name": "a"}, "spec": {"namespaces": ["*"]}}
ON_ALL = (
    "0 % of compute left of 60 asked: 200 % of compute are held without a grant by kube-system/pod-stray: delete it"
)

# What tenants are told of it, who need not know of others' pods.
TOLD = (
    "0 % of compute left of 60 asked: 200 % of compute are held without a grant by 1 pod: "
    "an operator can name and delete it"
)


def at(node: str, compute: int | None, memory: int | None = None, *, uid: str = "stray") -> Pod:
    """A pod that somebody else has bound to this node."""
    pod = asks(uid, compute, memory, namespace="kube-system")
    return replace(pod, spec=replace(pod.spec, node_name=node))


# --- turns -----------------------------------------------------------------------------------------------------------
def test_nobody_gets_a_turn_for_what_is_held_without_a_grant_until_it_is_deleted() -> None:
    """And who waits is told that somebody has to, and not whose pod it is: that may be another tenant's."""
    stage = staged(2)
    stage.see(at("n0", 200))
    stage.submit("p", 60)
    assert stage.round() == []
    assert said(stage, "p") == ("NoNode", f"1 node has room on its GPUs: {TOLD}")
    stage.gone("stray")
    assert stage.round() == ["p"]


def test_a_grant_of_a_later_version_is_told_as_that_and_nobody_is_to_delete_its_pod(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """After a downgrade it may run; beside it others are told of one that has none."""
    stage = staged(2)
    later = replace(at("n0", 120), metadata=replace(at("n0", 120).metadata, annotations={NAMES.grant: '{"v":2}'}))
    stage.see(later)
    assert "bound without a grant" not in caplog.text
    assert "a later version of Aliquot wrote it" in caplog.text
    stage.submit("p", 100)
    assert stage.round() == []
    held = "120 % of compute are held by grants that a later version of Aliquot wrote and this one can't read by"
    again = "install that version again"
    left = "80 % of compute left of 100 asked"
    assert said(stage, "p")[1] == f"1 node has room on its GPUs: {left}: {held} 1 pod: {again}"
    stage.see(at("n0", 10, uid="bare"))
    told = Obstacles(picture=stage.picture).of_node(host_ask(stage.pods["p"], names=NAMES), stage.picture.nodes["n0"])
    bare = "10 % of compute are held without a grant by kube-system/pod-bare: delete it"
    assert told == f"70 % of compute left of 100 asked: {bare}, {held} kube-system/pod-stray: {again}"


def test_what_is_left_beside_it_is_given_and_no_more() -> None:
    """Those that are promised count as well as those that are bound."""
    stage = staged(2)
    stage.see(at("n0", 100))
    for uid in ("first", "second", "third"):
        stage.submit(uid, 40)
    assert stage.round() == ["first", "second"]
    stage.bind("first", "second")
    assert stage.round() == []
    assert said(stage, "third")[1].startswith("1 node has room on its GPUs: 20 % of compute left of 40 asked: 100 %")
    stage.end("first")
    assert stage.round() == ["third"]


@pytest.mark.parametrize("end", ["Succeeded", "Failed"])
def test_one_that_has_ended_holds_nothing(end: str) -> None:
    """The kubelet refuses one that is too much for its node, and so it ends."""
    stage = staged(2)
    stray = at("n0", 200)
    stage.see(stray)
    stage.submit("p", 60)
    assert stage.round() == []
    stage.see(replace(stray, status=replace(stray.status, phase=end)))
    assert stage.round() == ["p"]


@pytest.mark.parametrize(
    ("stray", "asked", "words"),
    [
        ((60, 150_000), (50, 20_000), "10000 MiB of GPU memory left of 20000 asked: 150000 MiB of GPU memory are held"),
        ((None, 150_000), (None, 20_000), "10000 MiB of GPU memory left of 20000 asked"),
        # Of what is not asked for nothing is said, though less than none is left.
        ((300, 150_000), (None, 20_000), "10000 MiB of GPU memory left of 20000 asked"),
    ],
)
def test_memory_counts_as_compute_does(
    stray: tuple[int | None, int], asked: tuple[int | None, int], words: str
) -> None:
    """Each of the three by itself."""
    stage = staged(2)
    stage.see(at("n0", *stray))
    stage.submit("p", *asked)
    assert stage.round() == []
    assert words in said(stage, "p")[1]


def test_places_for_best_effort_count_too() -> None:
    """They are few where an operator wants few."""
    stage = staged(1)
    node = counting(stage.picture.nodes["n0"].node)
    told = {**node.status.allocatable, NAMES.best_effort: "1"}
    stage.picture.node_seen(replace(node, status=replace(node.status, allocatable=told)))
    stage.see(at("n0", None, 1_000))
    stage.submit("none", None, 1_000)
    stage.submit("some", 10, 1_000)
    assert stage.round() == ["some"]
    assert "0 places for best effort left of 1 asked: 1 place for best effort is held" in said(stage, "none")[1]


def test_others_go_to_the_node_that_is_free_of_it() -> None:
    """One node that is held keeps nobody off another."""
    stage = staged(2, 2)
    stage.see(at("n0", 200))
    for uid in ("first", "second", "third", "fourth"):
        stage.submit(uid, 60)
    assert stage.round() == ["first", "second"]
    assert {node for uid in ("first", "second") for node, _ in stage.picture.holdings.of(uid)} == {"n1"}
    why = said(stage, "third")[1]
    assert TOLD in why
    assert "the one that would take it has no room on its GPUs" in why


def test_a_grant_of_another_pod_is_none() -> None:
    """What counts for nothing gives no right to a GPU, and takes as much of the node."""
    stage = staged(2)
    stray = at("n0", 200)
    forged = bound(asks("other", 200, 1000), node="n0", held={"GPU-n0-0": (100, 500), "GPU-n0-1": (100, 500)})
    stage.see(replace(stray, metadata=replace(stray.metadata, annotations=forged.metadata.annotations)))
    stage.submit("p", 60)
    assert stage.round() == []
    assert TOLD in said(stage, "p")[1]


def test_a_node_that_does_not_say_what_it_has_is_left_to_kube_scheduler() -> None:
    """Its kubelet has not told of our resources: nothing is known to be short."""
    stage = Stage(nodes=(2,))
    stage.see(at("n0", 200))
    stage.submit("p", 60)
    assert stage.round() == ["p"]


def test_those_of_a_group_share_what_is_left() -> None:
    """Each alone would do, both together not."""
    stage = staged(2)
    stage.see(at("n0", 100))
    notes = {"group-size": "2", "group-topology": "node"}
    for uid in ("a", "b"):
        stage.submit(uid, 60, group="g", notes=notes)
    assert stage.round() == []
    stage.gone("stray")
    assert sorted(stage.round()) == ["a", "b"]


# --- queues ----------------------------------------------------------------------------------------------------------
def test_its_queue_is_charged_with_it_and_nobody_is_promised_the_same_beside() -> None:
    """A queue uses no more than there is, and what is so held is not said to be free."""
    stage = staged(2)
    assert stage.queues.stock().free[:2] == (200, 2 * MEMORY)
    stage.see(at("n0", 150, 100_000))
    assert stage.queues.stock().free[:2] == (50, 60_000)
    stage.submit("p", 40)
    stage.submit("q", 40)
    assert stage.run() == ["p"]
    assert stage.held("default") == 190
    assert stage.queues.stock().free[:2] == (10, 59_000)
    stage.gone("stray")
    assert stage.queues.stock().free[:2] == (160, 2 * MEMORY - 1_000)


OWNED: dict[str, QueueSpec] = {"owner": queue(guarantee=200), "other": queue()}


def test_victims_are_chosen_so_that_it_fits_beside_it() -> None:
    """Two cards of four are held: who goes makes the node's room, and not only a card's."""
    stage = ReclaimStage(OWNED, nodes=(4,))
    counted(stage)
    stage.see(at("n0", 200, 2_000))
    for uid in ("low1", "low2"):
        stage.submit(uid, 100, queue="other")
    assert sorted(stage.run()) == ["low1", "low2"]
    # Two cards are free, and still somebody has to go.
    stage.submit("p", 100, queue="owner")
    assert stage.round() == []
    assert stage.reclaimed() == ["low2"]
    assert stage.run() == ["p"]


def test_nobody_goes_where_it_would_not_fit_beside_it_all_the_same() -> None:
    """Whoever is evicted, the stray one stays."""
    stage = ReclaimStage(OWNED, nodes=(2,))
    counted(stage)
    stage.submit("low", 100, queue="other")
    assert stage.run() == ["low"]
    stage.see(at("n0", 100, 1_000))
    stage.submit("p", 200, queue="owner")
    assert stage.round() == []
    assert stage.victims() == []


# --- what is said ----------------------------------------------------------------------------------------------------
def test_explain_says_so_of_the_node() -> None:
    """In the same words."""
    node, waits = counting(make_node("n1", gpus("n1", 2))), asks("p", 60, None, spec=GATED)
    told = explain(waits, nodes=[node], leases=[make_lease("n1")], pods=[waits, at("n1", 200)], names=NAMES, wall=WALL)
    assert told.state == "waiting"
    assert [(one.fits, one.why) for one in told.nodes] == [(False, ON_ALL)]
    assert ON_ALL in told.summary


def refused(cards: Sequence[Gpu], *strays: Pod, asked: Asked) -> tuple[NodeCause, str]:
    """What is said of node n1 with these cards and strays to who asks so much compute."""
    picture = picture_with(counting(make_node("n1", cards)))
    for stray in strays:
        picture.pod_seen(stray)
    finder, pod = Finder(picture=picture, names=NAMES, named=True), asks("p", *asked)
    demand = demand_of(request_of(pod))
    found = finder.survey(pod, demand)
    assert not found.fits[picture.nodes["n1"].row]
    rows = {"n1": picture.nodes["n1"].row}
    refusal = finder.refusals(demand, rows, judgements=found.judgements, short=found.short)["n1"]
    return refusal.cause, refusal.why


def test_the_cause_is_its_own_and_what_is_for_good_stays_so() -> None:
    """Deleting helps the one, and not who asks more than the node has."""
    two = gpus("n1", 2)
    assert refused(two, at("n1", 200), asked=(60, None)) == (NodeCause.COUNTED, ON_ALL)
    assert not NodeCause.COUNTED.final
    assert refused(two, at("n1", 200), asked=(60, MEMORY + 1))[0] is NodeCause.TOO_SMALL


def test_who_holds_nothing_of_what_is_short_is_not_blamed() -> None:
    """A kubelet that tells of less than was granted is another matter."""
    picture = picture_with(counting(make_node("n1", gpus("n1", 2))))
    told = picture.nodes["n1"].node.status.allocatable
    picture.pod_seen(at("n1", None, 1_000))
    picture.pod_seen(bound(asks("old", 100, 1_000), node="n1", held={"GPU-n1-0": (100, 1_000)}))
    less = replace(picture.nodes["n1"].node.status, allocatable={**told, NAMES.compute: "100"})
    picture.node_seen(replace(picture.nodes["n1"].node, status=less))
    finder, pod = Finder(picture=picture, names=NAMES), asks("p", 60, None)
    short = finder.survey(pod, demand_of(request_of(pod))).short
    assert finder.counted.why(short.nodes, short) == {"n1": "0 % of compute left of 60 asked"}


def test_a_condition_is_another_one_when_the_blame_begins_or_ends_and_not_with_amounts() -> None:
    """Nobody is to look for a pod that is gone, and thousands are not told of each percent."""
    stage = staged(2)
    stage.submit("p", 60)

    def gist(said: Gist) -> Gist:
        ((waiter, word),) = stage.queues.words()
        return stage.queues.gist(waiter, word, said=said)

    def tainted(*taints: Taint) -> None:
        node = stage.picture.nodes["n0"].node
        stage.picture.node_seen(replace(node, spec=replace(node.spec, taints=taints)))

    tainted(Taint(key="busy", effect="NoSchedule"))
    assert stage.round() == []
    written = gist(Gist(reason=""))
    assert written == Gist(reason="NoNode")
    stage.see(at("n0", 200))
    tainted()
    assert stage.round() == []
    blaming = gist(written)
    assert blaming == Gist(reason="NoNode", blames=True)
    # What is written by then says just that.
    assert Gist.of(stage.queues.notice(stage.queues.waiting()[0])) == blaming
    stage.see(at("n0", 160))
    assert stage.round() == []
    assert gist(blaming) == blaming
    tainted(Taint(key="busy", effect="NoSchedule"))
    stage.gone("stray")
    assert stage.round() == []
    assert gist(blaming) == written


def test_explain_says_first_what_holds_now() -> None:
    """Of the leader's last word the numbers are older; that nobody goes only the leader knows."""
    node = counting(make_node("n1", gpus("n1", 2)))
    pod = asks("p", 60, None, spec=GATED)
    said = PodCondition(type=NAMES.admitted, status="False", reason="NobodyGoes", message="999 % are held; nobody goes")
    pod = replace(pod, status=replace(pod.status, conditions=[said]))
    pods, plan = [pod, at("n1", 200)], plan_of([msgspec.convert(A_QUEUE, Queue)], [], names=NAMES)
    told = explain(pod, nodes=[node], leases=[make_lease("n1")], pods=pods, names=NAMES, wall=WALL, plan=plan)
    assert told.reason == "NobodyGoes"
    assert told.summary == (
        f"the only node has no room: {ON_ALL}; as the leader wrote last: 999 % are held; nobody goes"
    )


def request_of(pod: Pod) -> PodRequest:
    """What it asks for."""
    return parse_request(pod, names=NAMES)


def test_several_are_named_together() -> None:
    """In order of their names, with their sum."""
    _, why = refused(gpus("n1", 2), at("n1", 100, uid="b"), at("n1", 80, uid="a"), asked=(60, None))
    assert why == (
        "20 % of compute left of 60 asked: 180 % of compute are held without a grant by "
        "kube-system/pod-a, kube-system/pod-b: delete them"
    )


def test_the_log_tells_of_each_once(caplog: pytest.LogCaptureFixture) -> None:
    """However often the watch does, and again for one that lost its grant."""
    caplog.set_level(logging.WARNING)
    stage = staged(2)
    for _ in range(3):
        stage.see(at("n0", 100, 8_000))
    (told,) = [one for one in caplog.records if one.message == "a pod is bound without a grant"]
    about = {name: getattr(told, name) for name in ("pod", "node", "compute", "memory")}
    assert about == {
        "pod": "kube-system/pod-stray",
        "node": "n0",
        "compute": 100,
        "memory": 8_000,
    }


def test_a_command_that_draws_a_picture_of_its_own_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """It says so where it is asked, and its own words are the user's."""
    caplog.set_level(logging.WARNING)
    picture_with(counting(make_node("n1", gpus("n1", 2)))).pod_seen(at("n1", 100))
    assert not caplog.records


def test_pods_that_ask_for_nothing_of_ours_are_not_meant() -> None:
    """They have no grant either, on every node."""
    stage = staged(1)
    plain = replace(at("n0", 10), spec=replace(at("n0", 10).spec, containers=[]))
    stage.picture.pod_lies(plain)
    assert not stage.picture.hosts.ungranted


# --- kube-scheduler's calls ------------------------------------------------------------------------------------------
def test_filter_and_bind_refuse_as_soon_as_it_is_seen() -> None:
    """The kubelet would refuse the pod, and fail it for good."""
    stage = staged(2)
    stage.submit("p", 60)
    stage.submit("q", 60)
    assert stage.round() == ["p", "q"]
    stage.lift("p", "q")
    assert stage.desk.filter(stage.pods["p"], ["n0"], now=stage.now).nodes == ["n0"]
    stage.see(at("n0", 100))
    # Both were promised room before, and together they are too much beside it.
    held = "100 % of compute are held without a grant by 1 pod: an operator can name and delete it"
    why = f"40 % of compute left of 60 asked: {held}"
    assert stage.desk.begin_bind(uid="p", node="n0", now=stage.now) == why
    answer = stage.desk.filter(stage.pods["p"], ["n0"], now=stage.now)
    assert answer.failed == {"n0": why}
    assert not answer.unresolvable
    # It is the other's now.
    assert not isinstance(stage.desk.begin_bind(uid="q", node="n0", now=stage.now), str)
