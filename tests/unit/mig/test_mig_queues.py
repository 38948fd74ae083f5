"""Queues before instances of MIG: what is charged, who waits, who has to go, and what a group is told."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from prometheus_client import CollectorRegistry

from aliquot_cli.top.bars import FREE
from aliquot_cli.top.tabular import Scene
from aliquot_cli.top.views import _gpu_bar
from aliquot_scheduler.centre.metrics import CentreCollector
from aliquot_scheduler.page.bars import gpu_bar
from aliquot_scheduler.page.cluster_view import _facts
from aliquot_scheduler.page.looking import _gpu_shown
from aliquot_scheduler.page.usage import Use
from aliquot_scheduler.queues.said.spec import QueueSpec
from support.centre import asks, bound, gpus, make_node
from support.mig import KINDS, instances
from support.queue_stage import queue
from support.reclaim_stage import ReclaimStage
from support.reigns import known_reign
from support.top_scene import gpu, piece, state_of

SMALL = KINDS["1g.10gb"]


def cut(specs: Mapping[str, QueueSpec], *cards: tuple[str, ...]) -> ReclaimStage:
    """A node whose cards are cut into these instances."""
    stage = ReclaimStage(specs, nodes=(1,))
    parts = [one for card, kinds in enumerate(cards) for one in instances("n0", *kinds, card=card)]
    stage.picture.node_seen(make_node("n0", parts))
    return stage


def word(stage: ReclaimStage, uid: str) -> str:
    """What a waiting pod is told."""
    return next(stage.queues.word(waiter) for waiter in stage.queues.waiting() if waiter.uid == uid)


def test_quotas_count_what_is_taken() -> None:
    """Three pods that ask for 10 % come to 42 %: the fourth waits for quota, though instances are free."""
    stage = cut({"a": queue(limit=42)}, ("1g.10gb",) * 7)
    for number in range(4):
        stage.submit(f"p{number}", 10, 5_000, queue="a")
    assert stage.run() == ["p0", "p1", "p2"]
    assert stage.run(after=1.0) == []
    assert stage.used("a") == (3 * SMALL[0], 3 * SMALL[1])
    assert word(stage, "p3") == "OverLimit"
    stage.end("p0")
    assert stage.run(after=1.0) == ["p3"]


def test_who_comes_to_a_larger_one_is_charged_that_once_it_is_bound() -> None:
    """The queue is then beyond its limit by the difference, and lets nobody in."""
    stage = cut({"a": queue(limit=30)}, ("3g.40gb", "1g.10gb", "1g.20gb", "2g.20gb"))
    stage.picture.pod_seen(bound(asks("o1", 14, None), node="n0", held={"MIG-n0-0-1": SMALL}))
    stage.picture.pod_seen(bound(asks("o2", 14, None), node="n0", held={"MIG-n0-0-2": KINDS["1g.20gb"]}))
    stage.picture.pod_seen(bound(asks("o3", 28, None), node="n0", held={"MIG-n0-0-3": KINDS["2g.20gb"]}))
    stage.submit("p0", 10, 5_000, queue="a")
    stage.submit("p1", 10, 5_000, queue="a")
    assert stage.run() == ["p0"]
    assert stage.used("a") == KINDS["3g.40gb"]
    stage.picture.pod_gone(asks("o1", 14, None))
    assert stage.run(after=1.0) == []


def test_whoever_has_to_go_leaves_an_instance_that_is_large_enough() -> None:
    """One who holds a smaller one is spared: the guarantee is met by the first that would do."""
    specs = {"mine": queue(guarantee=50), "theirs": queue()}
    stage = cut(specs, ("1g.10gb", "3g.40gb", "1g.10gb"))
    for number, compute in enumerate((10, 10, 30)):
        stage.submit(f"b{number}", compute, 5_000, queue="theirs")
    while stage.run(after=1.0):
        pass
    assert stage.used("theirs")[0] == 14 + 14 + 42
    stage.submit("m", 20, 5_000, queue="mine")
    assert stage.run(after=1.0) == []
    (clearing,) = stage.decide()
    assert [victim.uid for victim in clearing.victims] == ["b2"]
    ((key, claim),) = clearing.places[0].claims.items()
    assert (key, claim.compute.value, claim.memory.value) == ("MIG-n0-0-1", *KINDS["3g.40gb"])
    for uid in stage.evict():
        stage.gone(uid)
    assert stage.run(after=1.0) == ["m"]
    assert stage.used("mine") == KINDS["3g.40gb"]


@pytest.mark.parametrize(("size", "never"), [(3, False), (4, True)], ids=["as many as there are", "one more"])
def test_a_group_is_told_if_there_are_too_few(size: int, never: bool) -> None:
    """Each needs an instance of its own, of a card of its own here: they count by the piece, not by the percent."""
    stage = cut({"a": queue()}, *[("4g.40gb",)] * 3)
    for number in range(size):
        notes = {"group-size": str(size), "group-topology": "node"}
        stage.submit(f"g{number}", 55, 5_000, queue="a", group="g", notes=notes)
    assert len(stage.run()) == (0 if never else size)
    assert bool(stage.queues.waiting()) is never
    if never:
        told = stage.queues.why_not(stage.pods["g0"])
        assert told.endswith("ask on one node 220 % of compute, of which at most 171 % are there")


def test_pods_of_two_small_containers_need_two_instances() -> None:
    """Where the sums of both would lie on one: it is one container's."""
    stage = cut({"a": queue()}, ("3g.40gb",))
    pod = stage.submit("u", 5, 1_000, queue="a")
    stage.gone("u")
    first = pod.spec.containers[0]
    second = type(first)(name="second", resources=first.resources)
    pod.spec.containers.append(second)
    stage.see(pod)
    assert stage.run() == []
    stage.picture.node_seen(make_node("n0", instances("n0", "3g.40gb", "1g.10gb")))
    assert stage.run(after=1.0) == ["u"]
    assert stage.used("a") == (42 + 14, 40_192 + 9_728)


def test_who_asks_for_more_than_any_instance_has_is_told() -> None:
    """It would wait for ever, whoever ends."""
    stage = cut({"a": queue()}, ("3g.40gb", "1g.10gb"))
    stage.submit("u", 50, 5_000, queue="a")
    assert stage.run() == []
    assert word(stage, "u") == "NeverFits"
    told = "it asks 50 % of one GPU, and the largest instance of MIG that it may have has 42 %"
    assert stage.queues.why_not(stage.pods["u"]).endswith(told)


def test_metrics_strand_no_part_of_an_instance() -> None:
    """Its memory is the share of a card that goes with its compute; what is held of it is all of it."""
    reign = known_reign()
    for name in list(reign.picture.nodes):
        reign.picture.node_gone(name)
    reign.picture.node_seen(make_node("n1", instances("n1", "1g.10gb", "1g.10gb")))
    reign.picture.grid.allow(reign.picture.nodes["n1"].row, bindable=True)
    reign.picture.pod_seen(bound(asks("u", 14, 9_728), node="n1", held={"MIG-n1-0-0": SMALL}))
    registry = CollectorRegistry()
    registry.register(CentreCollector(reign=lambda: reign, leads=lambda: True))
    found = [registry.get_sample_value(f"aliquot_centre_{name}") for name in ("gpus", "compute_free_gpus")]
    assert found == [2.0, pytest.approx(0.14)]
    assert registry.get_sample_value("aliquot_centre_memory_free_bytes") == pytest.approx(9_728 * 1024**2, rel=1e-3)
    stranded = registry.get_sample_value("aliquot_centre_memory_stranded_bytes")
    assert stranded == pytest.approx(0.0, abs=1024**2)


def test_the_page_counts_what_of_a_card_there_is() -> None:
    """Its totals are sums of these."""
    (part,) = instances("n1", "2g.20gb")
    shown = [_gpu_shown(one, node="n1", slices=(), use=Use()).whole for one in (part, *gpus("n1", 1))]
    assert shown == [28, 100]


def test_an_instance_that_is_held_is_drawn_full() -> None:
    """On the page and in `aliquot top`: nothing of it is left."""
    held = piece("team/a-1", 14, used=7, memory=9_728)
    part = gpu("n1", 0, [held], size=9_728, whole=14)
    (free,) = [str(fact) for fact in _facts(part) if "Free compute" in str(fact)]
    assert "<dd>0 %</dd>" in free
    boxes = re.findall(r'<path class="q-none[^>]* d="M0 \d+h([0-9.]+)v', str(gpu_bar(part, {})))
    assert [float(width) for width in boxes] == [100, 50]
    scene = Scene(state=state_of([]), hues={}, used={}, slices={}, beside={}, out={})
    bar = "".join(span.text for span in _gpu_bar(part, scene, width=10))
    assert (bar.count(FREE), len(bar)) == (0, 10)
