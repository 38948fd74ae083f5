"""A cluster's own rules are asked wherever queues judge a place: who is let in, for whom nodes are kept, who goes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot_scheduler.queues.said.entry import plan_of
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.telling.standing import Standing
from aliquot_scheduler.rules.expressions import Expression, ExpressionRule
from aliquot_scheduler.rules.judging import NO_RULES, Rules
from aliquot_scheduler.rules.rule import ALL_WORDS, NodeFacts, Opinion, PodFacts
from support.centre import NAMES, WALL
from support.queue_stage import Stage, queue
from support.reclaim_stage import ReclaimStage

OWNER = {"red": queue(guarantee=200), "blue": queue()}
WHERE = NAMES.of("where")


def written(refuse: str) -> Rules:
    """One rule in CEL."""
    return Rules({"r": ExpressionRule(Expression(name="r", refuse=refuse, why="so it is"))})


def only(*nodes: str) -> Rules:
    """One by which nobody goes elsewhere."""
    return written(f"!(node.name in {list(nodes)})")


# A pod may say where alone it wants to lie.
AS_SAID = f'pod.annotations[?"{WHERE}"].orValue(node.name) != node.name'


def in_python(pod: PodFacts, node: NodeFacts) -> Opinion | None:
    """The same in Python."""
    return Opinion(refused=True, why="so it is") if pod.annotations.get(WHERE, node.name) != node.name else None


@pytest.mark.parametrize("rules", [written(AS_SAID), Rules({"r": in_python})], ids=["CEL", "Python"])
def test_what_a_rule_refuses_to_one_pod_it_does_not_refuse_to_others_that_ask_for_the_same(rules: Rules) -> None:
    """By its words they are told apart: the others have room, and get it at once."""
    stage = Stage(rules=rules, nodes=(1, 1))
    stage.submit("picky", 100, notes={"where": "nowhere"})
    stage.submit("easy", 100)
    stage.submit("picky too", 100, notes={"where": "n1"})
    assert sorted(stage.run()) == ["easy", "picky too"]
    assert stage.run(after=1.0) == []


def test_whoever_is_refused_everywhere_is_told_so_in_the_rule_s_words() -> None:
    """Not that cards lack room, which they do not."""
    stage = Stage(rules=written(AS_SAID), nodes=(1, 1))
    stage.submit("picky", 100, notes={"where": "nowhere"})
    assert stage.run() == []
    (waiter,) = stage.queues.waiting()
    told = stage.queues.notice(waiter)
    assert "all nodes with room are refused: 2 by rule r: so it is" in told.message


@given(st.lists(st.tuples(st.sampled_from([30, 50, 100]), st.sampled_from(["", "n0", "n1", "nowhere"])), max_size=12))
@settings(deadline=None)
def test_nobody_waits_who_has_room_that_rules_leave(asked: list[tuple[int, str]]) -> None:
    """And nobody lies where a rule refuses it, in whatever order they come."""
    stage = Stage(rules=written(AS_SAID), nodes=(1, 1))
    for number, (compute, where) in enumerate(asked):
        stage.submit(f"u{number}", compute, notes={"where": where} if where else {})
    while stage.run(after=1.0):
        pass
    for waiter in stage.queues.waiting():
        assert not stage.desk.finder.survey(waiter.pod, waiter.demand).fits.any()
    for pod in stage.pods.values():
        if node := pod.spec.node_name:
            assert pod.metadata.annotations.get(WHERE, node) == node


def test_a_rule_that_reads_nothing_of_pods_tells_none_apart() -> None:
    """So that of a thousand equal pods still only the first is looked at, whatever is written on them."""
    stage = Stage(rules=only("n0"), nodes=(1, 1))
    for uid in ("a", "b"):
        stage.submit(uid, 100, notes={"where": uid})
    shapes = {waiter.shape for waiter in stage.queues.waiting()}
    assert len(shapes) == 1
    assert (only("n0").reads, Rules({"r": in_python}).reads) == (frozenset(), ALL_WORDS)
    assert written(AS_SAID).reads == {("annotations", WHERE)}
    assert written("pod.labels.size() > 1").reads == {("labels", "")}
    assert written("[pod].size() > 1").reads == ALL_WORDS


def test_a_group_that_lies_together_finds_the_one_node_that_rules_leave() -> None:
    """However many fuller ones there are, which are tried before it."""
    stage = Stage(rules=only("n19"), nodes=(2,) * 19 + (3,))
    for number in range(2):
        uid = f"g{number}"
        stage.submit(uid, 100, group="g", notes={"group-size": "2", "group-topology": "node"})
    assert sorted(stage.run()) == ["g0", "g1"]
    assert {stage.pods[uid].spec.node_name for uid in ("g0", "g1")} == {"n19"}


def test_no_node_is_kept_for_a_head_that_rules_refuse_it_to() -> None:
    """It would stand idle for nobody: others go there at once, and to the one that is kept nobody does."""
    settings = QueueSettings(patience=10.0, hold=1000.0)
    stage = Stage(OWNER, rules=written(AS_SAID), nodes=(2, 2), settings=settings)
    for number, node in enumerate(("n0", "n1")):
        stage.submit(f"first{number}", 100, queue="blue", notes={"where": node})
    stage.run()
    stage.submit("head", 200, queue="blue", notes={"where": "n1"})
    assert stage.run(after=1.0) == []
    stage.submit("small0", 100, queue="blue", notes={"where": "n0"})
    stage.submit("small1", 100, queue="blue", notes={"where": "n1"})
    stage.now += 20.0
    assert stage.run() == ["small0"]
    kept = stage.queues.register.memory.kept(now=stage.now)
    assert kept == {"head": ("n1",)}


def test_nobody_is_sent_away_from_a_node_that_rules_refuse() -> None:
    """An owner gets back what it lent only where it may lie."""
    stage = ReclaimStage(OWNER, rules=written(AS_SAID), nodes=(2, 2))
    for number in range(4):
        stage.submit(f"blue{number}", 100, queue="blue", notes={"where": f"n{number % 2}"})
    while stage.run(after=1.0):
        pass
    stage.submit("red0", 100, queue="red", notes={"where": "n0"})
    assert stage.reclaimed() == ["blue2"]
    assert stage.run() == ["red0"]
    stage.submit("red1", 100, queue="red", notes={"where": "nowhere"})
    assert stage.victims(after=60.0) == []


def test_of_a_group_each_may_lie_where_its_room_is_made() -> None:
    """A node that rules refuse to one of them is none for them together."""
    stage = ReclaimStage(OWNER, rules=written(AS_SAID), nodes=(2, 2))
    for number in range(4):
        stage.submit(f"blue{number}", 100, queue="blue", notes={"where": f"n{number % 2}"})
    while stage.run(after=1.0):
        pass
    together = {"group-size": "2", "group-topology": "node"}
    stage.submit("red0", 100, queue="red", group="g", notes=together)
    stage.submit("red1", 100, queue="red", group="g", notes=together | {"where": "n0"})
    assert stage.reclaimed() == ["blue0", "blue2"]
    assert sorted(stage.run()) == ["red0", "red1"]


def test_whoever_looks_from_outside_is_told_the_same() -> None:
    """`aliquot explain`, `queue` and `ps` work it out anew, by the rules that the leader tells."""
    stage = Stage(rules=written(AS_SAID), nodes=(1, 1))
    pod = stage.submit("picky", 100, notes={"where": "nowhere"})
    for rules, said in ((written(AS_SAID), "all nodes with room are refused: 2 by rule r: so it is"), (NO_RULES, "")):
        standing = Standing(
            picture=stage.picture, plan=plan_of([], [], names=NAMES), pods=[pod], names=NAMES, wall=WALL, rules=rules
        )
        waiter = standing.waiter(pod)
        assert waiter is not None
        assert standing.why_no_node(waiter) == said
