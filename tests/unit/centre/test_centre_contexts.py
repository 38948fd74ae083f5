"""A slice has memory for a CUDA context wherever it may lie, and whoever can have it nowhere is told in numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import pytest

from aliquot_core.inventory import Gpu
from aliquot_core.objects import Pod, Queue
from aliquot_core.patterns import parse_patterns
from aliquot_core.request import parse_request
from aliquot_scheduler.admission.settings import AdmissionSettings
from aliquot_scheduler.admission.validation import judge
from aliquot_scheduler.explaining import explain
from aliquot_scheduler.fit.demand import demand_of
from aliquot_scheduler.fit.finder import Finder
from aliquot_scheduler.fit.nowhere import nowhere_in
from aliquot_scheduler.picture.there import There, there_in
from aliquot_scheduler.queues.said.entry import plan_of
from support.admitting import container as asking
from support.admitting import decoded, written
from support.centre import (
    MEMORY,
    NAMES,
    WALL,
    asks,
    container,
    gpus,
    make_lease,
    make_node,
    make_pod,
    picture_with,
)
from support.mig import instances
from support.queue_stage import Stage, queue

t4s = partial(gpus, "t4", 2, model="Tesla T4", memory=15_000)


def costing(context: int | None, cards: Sequence[Gpu]) -> list[Gpu]:
    """The same GPUs of a node whose agent says what a CUDA context takes."""
    return [msgspec.structs.replace(card, context=context) for card in cards]


# By node: a context takes nothing that is known, little, much, and more than a small instance has.
NODES = (
    make_node("old", costing(None, gpus("old", 2))),
    make_node("small", costing(300, gpus("small", 2))),
    make_node("large", costing(512, gpus("large", 2))),
    make_node("t4", costing(512, t4s())),
    make_node("mig", costing(512, instances("mig", "1g.10gb"))),
    make_node("cut", costing(9_729, instances("cut", "1g.10gb"))),
)
ALL = {"old", "small", "large", "t4", "mig", "cut"}


def init(memory: int) -> dict[str, Any]:
    """An init container that asks for so much."""
    return container("init", (10, memory))


FITS: dict[str, tuple[Pod, set[str]]] = {
    "enough everywhere": (asks("a", 10, 512), ALL - {"cut"}),
    "one MiB less": (asks("a", 10, 511), {"old", "small", "mig"}),
    "less than the least": (asks("a", 10, 299), {"old", "mig"}),
    "best effort": (asks("a", None, 300), {"old", "small"}),
    "a part of the card": (asks("a", 3, None), ALL - {"t4", "cut"}),
    "a larger part": (asks("a", 4, None), ALL - {"cut"}),
    "a whole card": (asks("a", 100, 511), {"old", "small"}),
    "two cards": (asks("a", 60, 1_023, annotations={NAMES.gpus: "2"}), {"old", "small"}),
    "the least part of several": (asks("a", 150, 1_533), {"old", "small"}),
    "and enough of it": (asks("a", 150, 1_534), ALL - {"mig", "cut"}),
    "an init container": (make_pod("a", container("main", (10, 9_000)), inits=[init(400)]), {"old", "small", "mig"}),
    "one of two": (make_pod("a", container("main", (10, 900)), container("side", (10, 400))), {"old", "small"}),
}


@pytest.mark.parametrize("row", FITS)
def test_a_pod_fits_where_a_context_leaves_each_container_something(row: str) -> None:
    """All nodes at once, and each by itself, on which a bind looks again."""
    pod, expected = FITS[row]
    picture = picture_with(*NODES)
    finder, demand = Finder(picture=picture, names=NAMES), demand_of(parse_request(pod, names=NAMES))
    found = finder.survey(pod, demand)
    assert {name for name, known in picture.nodes.items() if found.fits[known.row]} == expected
    assert {name for name in picture.nodes if finder.plan(pod, demand, node=name)} == expected


def test_who_can_have_a_context_nowhere_waits_and_is_told() -> None:
    """It keeps nobody else's room, and a node on which a context takes less lets it in."""
    stage = Stage({}, nodes=())
    for name, context in (("n1", 700), ("n2", 512)):
        stage.picture.node_seen(make_node(name, costing(context, gpus(name, 1))))
    stage.beat()
    stage.submit("thin", 10, 400)
    assert stage.round() == []
    (waiter,) = stage.queues.waiting()
    notice = stage.queues.notice(waiter)
    assert notice.reason == "NeverFits"
    assert notice.message == (
        "no node could take it, even if it were empty: a CUDA context takes 512 MiB or more on each GPU that it may"
        " have, and container main asks for 400 MiB there"
    )
    stage.submit("next", 100, MEMORY)
    assert stage.round() == ["next"]
    stage.picture.node_seen(make_node("n3", costing(300, gpus("n3", 1))))
    stage.beat()
    assert stage.round() == ["thin"]


def test_nodes_that_look_the_same_are_each_counted_and_each_thing_is_said_once() -> None:
    """Three of four would take it by their GPUs; the fourth is not left out, and `explain` adds nothing to it."""
    stage = Stage({"a": queue()}, nodes=())
    for number, context in enumerate((None, None, None, 512)):
        stage.picture.node_seen(make_node(f"n{number}", costing(context, gpus(f"n{number}", 1))))
    stage.beat()
    match = [{"key": "metadata.name", "operator": "In", "values": ["nowhere"]}]
    named = {"nodeSelectorTerms": [{"matchFields": match}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": named}}
    pod = stage.submit("thin", 10, 400, queue="a", spec={"affinity": affinity})
    assert stage.round() == []
    (waiter,) = stage.queues.waiting()
    notice = stage.queues.notice(waiter)
    assert notice.reason == "NeverFits"
    assert notice.message == (
        "3 nodes have such GPUs: there is no node nowhere; 1 more can't take it: a CUDA context takes 512 MiB on "
        "1 of 1 GPU, and container main asks for 400 MiB there"
    )
    specs = [msgspec.convert({"metadata": {"name": "a"}, "spec": {"namespaces": ["*"]}}, Queue)]
    nodes = [known.node for known in stage.picture.nodes.values()]
    leases = [make_lease(name) for name in stage.picture.nodes]
    plan = plan_of(specs, [], names=NAMES)
    told = explain(pod, nodes=nodes, leases=leases, pods=[pod], names=NAMES, wall=WALL, plan=plan)
    assert told.summary == notice.message


# What a context takes by node, the setting, the least that may be asked, and the least that is enough everywhere.
LEAST: dict[str, tuple[list[int | None], int, int, int]] = {
    "no node": ([], 300, 300, 300),
    "nodes whose agents do not say": ([None, None], 300, 300, 300),
    "one that says": ([512], 300, 512, 512),
    "less than the setting": ([200], 300, 200, 200),
    "the least of several": ([700, 512], 300, 512, 700),
    "some do not say": ([None, 512], 300, 300, 512),
    "some do not say, and others take less": ([None, 200], 300, 200, 300),
    "it takes nothing": ([0, 512], 300, 1, 512),
}


@pytest.mark.parametrize("row", LEAST)
def test_the_webhook_refuses_what_no_node_can_give_a_context(row: str) -> None:
    """And says what is enough on all; with one MiB more it lets the pod in, and warns until that is asked."""
    contexts, setting, least, most = LEAST[row]
    nodes = (make_node(f"n{at}", costing(one, gpus(f"n{at}", 1))) for at, one in enumerate(contexts))
    there, settings = there_in(picture_with(*nodes)), AdmissionSettings(least_memory=setting)

    def judged(memory: int, *, compute: str = "30") -> tuple[list[str], list[str]]:
        pod = decoded(written(asking(compute=compute, memory=str(memory))))
        verdict = judge(pod, names=NAMES, settings=settings, there=there)
        return [str(problem) for problem in verdict.problems], list(verdict.warnings)

    by_node = f"{least} MiB on each GPU" if least == most else f"{least} to {most} MiB by node on each GPU"
    both = "" if least == most else f"; {most} to lie anywhere"
    assert judged(most) == ([], [])
    if least > 1:
        (said,), _ = judged(least - 1)
        needs = f"{least - 1} MiB is less than a CUDA context needs, {by_node}"
        assert said == f"container main, {NAMES.memory}: {needs}; write at least {least}{both}"
    if 1 < least < most:
        some = "is less than a CUDA context needs on some nodes"
        for memory in (least, most - 1):
            told = f"container main, {NAMES.memory}: {memory} MiB {some}, {by_node}"
            assert judged(memory) == ([], [f"{told}: write at least {most} to lie anywhere"])


def test_the_remedy_for_a_slice_of_several_gpus_is_enough_everywhere() -> None:
    """Not only where a context takes least: what is taken in so waits for ever if the others are the ones for it."""
    nodes = [make_node(name, costing(context, gpus(name, 2))) for name, context in (("n1", 300), ("n2", 512))]
    picture = picture_with(*nodes)

    def problems(memory: int) -> list[str]:
        pod = decoded(written(asking(compute="110", memory=str(memory))))
        verdict = judge(pod, names=NAMES, settings=AdmissionSettings(), there=there_in(picture))
        return [*map(str, verdict.problems), *verdict.warnings]

    (refused,), (warned,) = problems(1_000), problems(3_290)
    assert refused.endswith("and leaves 91 on one of its 2 GPUs; write at least 3290; 5622 to lie anywhere")
    assert warned.endswith("on some nodes, 300 to 512 MiB by node on each GPU: write at least 5622 to lie anywhere")
    assert problems(5_622) == []
    for memory, expected in ((5_621, {"n1"}), (5_622, {"n1", "n2"})):
        pod = asks("a", 110, memory)
        found = Finder(picture=picture, names=NAMES).survey(pod, demand_of(parse_request(pod, names=NAMES)))
        assert {name for name, known in picture.nodes.items() if found.fits[known.row]} == expected


def test_a_gpu_that_a_context_takes_whole_spoils_nobody_s_words() -> None:
    """Nobody lies on it, and no number that its operator mistook is told to who asks for others."""
    for context, memory in ((15_000, 15_000), (16_000, 15_000)):
        cards = costing(context, t4s(memory=memory))
        picture = picture_with(make_node("t4", cards), make_node("n1", costing(512, gpus("n1", 1))))
        finder = Finder(picture=picture, names=NAMES)
        for pod in (asks("a", 100, None), asks("a", 100, 15_000), asks("a", None, 600)):
            demand = demand_of(parse_request(pod, names=NAMES))
            found = finder.survey(pod, demand)
            assert {name for name, known in picture.nodes.items() if found.fits[known.row]} == {"n1"}
            assert {name for name in picture.nodes if finder.plan(pod, demand, node=name)} == {"n1"}
        there = there_in(picture)
        assert there.context_span(otherwise=300) == (512, 512)
        assert there.largest(parse_patterns("*T4*", where="x")) == 0


# What is asked, and what is told as the pod is made: nothing where a node could take it, were it empty.
THIN_T4 = (
    "a CUDA context takes 300 MiB on each GPU that it may have, and container main asks for 1 % of its memory there"
)
NOWHERE: dict[str, tuple[dict[str, str], str, str]] = {
    "memory left out": ({"compute": "1"}, "*T4*", f"{THIN_T4}; 300 MiB of {NAMES.memory} would do"),
    "left out of several": ({"compute": "101"}, "*T4*", f"{THIN_T4}; 30200 MiB of {NAMES.memory} would do"),
    "enough of it": ({"compute": "2"}, "*T4*", ""),
    "many GPUs": ({"compute": "500"}, "", "it needs 5 GPUs of one node, and no node has more than 4 that it may have"),
    "as many as there are": ({"compute": "400"}, "", ""),
    "too large, which is told": ({"compute": "100", "memory": "90000"}, "", ""),
    "too thin, which is refused": ({"compute": "30", "memory": "200"}, "", ""),
}


@pytest.mark.parametrize("row", NOWHERE)
def test_who_fits_nowhere_is_told_at_once(row: str) -> None:
    """By the words that its condition would have; what is told otherwise is not told twice."""
    limits, model, expected = NOWHERE[row]
    t4 = make_node("t4", costing(300, t4s()))
    picture = picture_with(t4, make_node("n1", costing(512, gpus("n1", 4))))
    there = replace(there_in(picture), nowhere=nowhere_in(picture, names=NAMES))
    asked = asking()
    asked["resources"] = {"limits": {NAMES.of(name): amount for name, amount in limits.items()}}
    pod = decoded(written(asked, notes={"gpu-model": model} if model else {}))
    verdict = judge(pod, names=NAMES, settings=AdmissionSettings(), there=there)
    told = [one for one in verdict.warnings if one.startswith("no node could take it")]
    assert told == ([f"no node could take it, even if it were empty: {expected}"] if expected else [])


def test_while_no_gpu_is_there_nobody_is_warned() -> None:
    """A cluster that begins, or whose nodes come for pods, takes anything."""
    assert nowhere_in(picture_with(), names=NAMES)(parse_request(asks("a", 100, None), names=NAMES)) == ""


def test_memory_that_no_gpu_has_is_told() -> None:
    """Of the models that the pod may have; a larger GPU may come, so it may wait."""
    small, large = t4s(), gpus("n1", 2)
    there = there_in(picture_with(make_node("t4", costing(300, small)), make_node("n1", costing(300, large))))

    def warnings(memory: int, notes: dict[str, str], *, known: There = there) -> list[str]:
        pod = decoded(written(asking(compute="30", memory=str(memory)), notes=notes))
        verdict = judge(pod, names=NAMES, settings=AdmissionSettings(), there=known)
        assert verdict.problems == ()
        return list(verdict.warnings)

    for most, notes in ((MEMORY, {}), (15_000, {"gpu-model": "*T4"}), (15_000, {"gpu-model": "*T4", "gpus": "2"})):
        cards = int(notes.get("gpus", "1"))
        assert warnings(cards * most, notes) == []
        told = f"it asks {most + 1} MiB of one GPU, and the largest that it may have has {most} MiB"
        assert warnings(cards * (most + 1), notes) == [
            f"container main, {NAMES.memory}: {told}, so the pod may wait for ever"
        ]
    assert warnings(80_000_000, {}, known=There()) == []
