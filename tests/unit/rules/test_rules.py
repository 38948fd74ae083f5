"""Rules of a cluster's own are heard in the centre, in `explain` and in `simulate`, and one that fails harms nobody."""

from __future__ import annotations

import logging
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from aliquot_cli.main import main
from aliquot_core.objects import Node
from aliquot_core.request import parse_request
from aliquot_scheduler.deciding.desk import Desk
from aliquot_scheduler.explaining import explain
from aliquot_scheduler.fit.demand import demand_of
from aliquot_scheduler.fit.finder import Finder
from aliquot_scheduler.queues.turns import Queues
from aliquot_scheduler.rules import installed
from aliquot_scheduler.rules.expressions import RuleSettings
from aliquot_scheduler.rules.installed import installed_rules, rules_in_force
from aliquot_scheduler.rules.judging import Failure, Judgement, Rules
from aliquot_scheduler.rules.limit import RuleError, RuleTooSlowError, alarm
from aliquot_scheduler.rules.rule import NodeFacts, Opinion, PodFacts, Rule
from aliquot_scheduler.simulating.reading import TraceError, read_nodes, read_pods
from aliquot_scheduler.simulating.runs import MixSource, PolicyName, begin, report
from aliquot_scheduler.simulating.workload import Workload
from support.centre import NAMES, WALL, asks, gpus, make_lease, make_node, picture_with
from support.reigns import known_reign

EXAMPLE = Path(__file__).parents[3] / "examples" / "own-rule"
WISH = {"example.org/disk": "ssd"}


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Rules:
    """The rule of examples/own-rule, found as an installed one is."""
    monkeypatch.syspath_prepend(EXAMPLE)
    monkeypatch.delitem(sys.modules, "fast_disk_rule", raising=False)
    point = EntryPoint(name="fast-disk", value="fast_disk_rule:fast_disk", group="aliquot.rules")
    assert f'{point.name} = "{point.value}"' in (EXAMPLE / "pyproject.toml").read_text()
    install(monkeypatch, point)
    return rules_in_force(RuleSettings())


def install(monkeypatch: pytest.MonkeyPatch, *points: EntryPoint) -> None:
    """Let these be what is installed."""
    monkeypatch.setattr(installed, "entry_points", lambda *, group: EntryPoints(points).select(group=group))


def nodes() -> list[Node]:
    """Two, of which the second has fast disks."""
    return [make_node(name, gpus(name, 2), labels={"disktype": disk}) for name, disk in (("n1", "hdd"), ("n2", "ssd"))]


def test_the_example_prefers_nodes_with_fast_disks(example: Rules) -> None:
    """Of two that are equal otherwise the one, whichever it is; without the rule they cost the same."""
    picture = picture_with(*nodes())
    pod = asks("u", 30, 1_000)
    demand = demand_of(parse_request(pod, names=NAMES))
    rows = [picture.nodes[name].row for name in ("n1", "n2")]
    plain = Finder(picture=picture, names=NAMES).survey(pod, demand).cost[rows]
    ruled = Finder(picture=picture, names=NAMES, rules=example).survey(pod, demand)
    assert plain[0] == plain[1]
    assert ruled.cost[rows].tolist() == pytest.approx([0.2, 0.0])
    assert ruled.fits[rows].all()


def test_what_a_rule_refuses_is_refused_with_its_words(example: Rules) -> None:
    """No eviction helps against it."""
    picture = picture_with(*nodes())
    pod = asks("u", 30, 1_000, annotations=WISH)
    demand = demand_of(parse_request(pod, names=NAMES))
    finder = Finder(picture=picture, names=NAMES, rules=example)
    found = finder.survey(pod, demand)
    row = picture.nodes["n1"].row
    assert [found.fits[row], found.fits[picture.nodes["n2"].row]] == [False, True]
    (refusal,) = finder.refusals(demand, {"n1": row}, judgements=found.judgements).values()
    assert (refusal.final, refusal.why) == (True, "rule fast-disk: its disks are slow, and the pod wants fast ones")


def test_the_desk_offers_no_node_that_a_rule_refuses(example: Rules) -> None:
    """And hands the words on to kube-scheduler; of the others the one it prefers has the best grade."""
    picture = picture_with(*nodes())
    turns = Queues(names=NAMES, random=lambda: 0.5, picture=picture)
    desk = Desk(picture=picture, names=NAMES, turns=turns, rules=example)
    names = ["n1", "n2"]
    picky, easy = asks("u", 30, 1_000, annotations=WISH), asks("v", 30, 1_000)
    told = desk.filter(picky, names, now=0.0)
    assert (told.nodes, told.failed) == (["n2"], {})
    assert told.unresolvable == {"n1": "rule fast-disk: its disks are slow, and the pod wants fast ones"}
    assert desk.filter(easy, names, now=0.0).nodes == names
    grades = dict(zip(names, desk.prioritize(easy, names), strict=True))
    assert grades["n2"] > grades["n1"] + 50


def test_a_leader_hears_the_rules_that_it_is_given(example: Rules) -> None:
    """From its first decision on."""
    reign = known_reign(rules=example)
    found = reign.desk.finder.survey(pod := asks("u9", 5, 10), demand_of(parse_request(pod, names=NAMES)))
    assert [one.cost for one in found.judgements.values()] == [0.2]


@pytest.mark.parametrize(
    ("annotations", "said"),
    [
        ({}, {"n1": "has room; 0.2 GPUs dearer by rule fast-disk: its disks are slow", "n2": "has room"}),
        (WISH, {"n1": "rule fast-disk: its disks are slow, and the pod wants fast ones", "n2": "has room"}),
    ],
)
def test_explain_tells_of_rules(example: Rules, annotations: dict[str, str], said: dict[str, str]) -> None:
    """In the words of the rule."""
    pod = asks("u", 30, 1_000, annotations=annotations)
    leases = [make_lease(name) for name in said]
    told = explain(pod, nodes=nodes(), leases=leases, pods=[pod], names=NAMES, wall=WALL, rules=example)
    assert {one.node: one.why for one in told.nodes} == said


def test_a_rule_is_told_what_the_pod_and_the_node_are() -> None:
    """And a change of the node's labels at the next question."""
    told: list[tuple[PodFacts, NodeFacts]] = []

    def listen(pod: PodFacts, node: NodeFacts) -> None:
        told.append((pod, node))

    picture = picture_with(nodes()[0])
    finder = Finder(picture=picture, names=NAMES, rules=Rules({"listen": listen}))
    pod = asks("u", 200, None, annotations={"a": "b"})
    for labels in ({"disktype": "hdd"}, {"disktype": "new"}):
        picture.node_seen(make_node("n1", gpus("n1", 2), labels=labels))
        finder.survey(pod, demand_of(parse_request(pod, names=NAMES)))
    facts = PodFacts(namespace="team", annotations={"a": "b"}, gpus=2, compute=100)
    model = "NVIDIA A100-SXM4-80GB"
    assert [one for one, _ in told] == [facts, facts]
    assert told[0][1] == NodeFacts(name="n1", labels={"disktype": "hdd"}, models=(model, model))
    assert told[1][1].labels == {"disktype": "new"}


def test_of_nodes_that_are_gone_nothing_is_kept() -> None:
    """They come and go under ever new names; who comes in the place of one is told of as it is."""
    told: list[NodeFacts] = []
    picture = picture_with()
    finder = Finder(picture=picture, names=NAMES, rules=Rules({"listen": lambda _, node: told.append(node)}))
    pod = asks("u", 30, 1_000)
    for number in range(50):
        name = f"n{number}"
        picture.node_seen(make_node(name, gpus(name, 1), labels={"number": str(number)}))
        picture.lease_seen(make_lease(name), wall=WALL)
        finder.survey(pod, demand_of(parse_request(pod, names=NAMES)))
        picture.node_gone(name)
    assert [(one.name, one.labels) for one in told] == [(f"n{at}", {"number": str(at)}) for at in range(50)]
    assert len(finder._ruled._facts) <= 2


def rules(**made: Callable[[PodFacts, NodeFacts], Any]) -> Rules:
    """Some, within the real limit."""
    return Rules(made, limit=alarm)


def judge(asked: Rules) -> dict[str, Judgement]:
    """About two nodes."""
    return asked.judge(PodFacts(), [NodeFacts(name="n1"), NodeFacts(name="n2")])


def test_several_rules_add_up_and_the_first_refusal_stands() -> None:
    """By name, so that the answer does not hang on who was installed first."""
    costs: dict[str, Rule] = {
        "b": lambda _, node: Opinion(cost=0.5, why="far") if node.name == "n1" else None,
        "a": lambda *_: Opinion(cost=0.25),
        "d": lambda _, node: Opinion(refused=True, why="no") if node.name == "n2" else None,
        "c": lambda _, node: Opinion(refused=True) if node.name == "n2" else None,
    }
    found = judge(Rules(costs))
    assert (found["n1"].cost, found["n1"].refused) == (0.75, "")
    assert found["n1"].remarks == ("0.25 GPUs dearer by rule a", "0.5 GPUs dearer by rule b: far")
    assert found["n2"].refused == "rule c"


def forever(_: PodFacts, __: NodeFacts) -> None:
    """Never end, and swallow what would end it once."""
    try:
        while True:
            pass
    except RuleError:
        while True:
            pass


BAD: dict[str, Callable[[PodFacts, NodeFacts], Any]] = {
    "raises": lambda *_: 1 // 0,
    "says nonsense": lambda _, node: node.name,
    "costs nothing sensible": lambda *_: Opinion(cost=math.nan),
}


def test_a_rule_that_takes_too_long_is_silent_told_and_set_aside_after_three(caplog: pytest.LogCaptureFixture) -> None:
    """The others are heard all the same."""
    asked = rules(bad=forever, good=lambda *_: Opinion(cost=1.0))
    for failures in (1, 2, 3):
        assert {name: one.cost for name, one in judge(asked).items()} == {"n1": 1.0, "n2": 1.0}
        assert len(caplog.records) == failures
    assert (asked.names, [record.levelno for record in caplog.records]) == (["good"], [logging.ERROR] * 3)
    judge(asked)
    assert (len(caplog.records), asked.set_aside) == (3, {"bad"})


@pytest.mark.parametrize("what", BAD)
def test_a_rule_that_fails_is_silent_for_that_pod_alone(what: str) -> None:
    """However often it fails on the words of one: the next pod is judged by it."""
    asked = rules(
        bad=lambda pod, node: BAD[what](pod, node) if pod.labels else Opinion(refused=True),
        good=lambda *_: Opinion(cost=1.0),
    )
    for _ in range(5):
        judged = asked.judge(PodFacts(labels={"tier": "abc"}), [NodeFacts(name="n1")])
        assert [(one.refused, one.cost) for one in judged.values()] == [("", 1.0)]
    assert [one.refused for one in judge(asked).values()] == ["rule bad", "rule bad"]
    assert (asked.failures, asked.set_aside) == ({"bad": 5}, set())


def test_a_rule_that_fails_without_end_is_told_of_ever_more_seldom() -> None:
    """By whose pod, and how often; a pod that waits is asked of twice a second."""
    told: list[Failure] = []
    asked = Rules({"bad": BAD["raises"]}, failed=told.append)
    for _ in range(100):
        asked.judge(PodFacts(namespace="team"), [NodeFacts(name="n1")])
    assert [one.times for one in told] == [1, 2, 4, 8, 16, 32, 64]
    assert {(one.namespace, one.set_aside) for one in told} == {("team", False)}


@pytest.mark.parametrize(("said", "counts"), [(-1.0, 0.0), (2.5, 2.0), (math.inf, 2.0), (2.0, 2.0)])
def test_a_cost_counts_as_0_at_least_and_2_at_most(said: float, counts: float) -> None:
    """Whoever reckons with pods' words is not silenced by a pod that has many, on other nodes neither."""
    asked = rules(dear=lambda _, node: Opinion(refused=True) if node.name == "n2" else Opinion(cost=said))
    found = judge(asked)
    assert (found["n1"].cost, found["n2"].refused, asked.failures) == (counts, "rule dear", {})


def test_nothing_counts_of_what_a_rule_said_before_it_failed() -> None:
    """Half an opinion would send pods to the nodes that come later in the list."""
    asked = rules(half=lambda _, node: Opinion(refused=True) if node.name == "n1" else 1 // 0)
    assert judge(asked) == {}


def too_slow(_: PodFacts, __: NodeFacts) -> None:
    """As the alarm ends it."""
    raise RuleTooSlowError("it took longer", where="rule", remedy="do less in it")


def test_a_rule_that_is_slow_now_and_then_is_kept() -> None:
    """Three times in a row is what counts; who fails in less time has shown that it ends."""
    answers: Iterator[Rule] = iter([too_slow, too_slow, lambda *_: None, too_slow, too_slow, BAD["raises"]] * 3)

    def moody(pod: PodFacts, node: NodeFacts) -> Opinion | None:
        return next(answers)(pod, node)

    asked = rules(moody=moody)
    for _ in range(18):
        asked.judge(PodFacts(), [NodeFacts(name="n1")])
    assert (asked.names, asked.failures) == (["moody"], {"moody": 15})


def test_a_rule_that_is_asked_of_no_node_has_not_mended() -> None:
    """On a full cluster it would else never be set aside, and hold everybody up for ever."""
    asked = rules(bad=too_slow)
    for _ in range(3):
        assert asked.judge(PodFacts(), []) == {}
        judge(asked)
    assert (asked.names, asked.failures) == ([], {"bad": 3})


def test_the_alarm_leaves_nothing_behind() -> None:
    """Whoever had the signal has it again, and nothing rings later."""
    before, timer = signal.getsignal(signal.SIGALRM), signal.setitimer(signal.ITIMER_REAL, 40.0)
    with pytest.raises(RuleTooSlowError), alarm(0.02):
        time.sleep(20.0)  # noqa: TID251, RUF100 - it is to be broken off
    with alarm():
        pass
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.setitimer(signal.ITIMER_REAL, *timer)[0] == pytest.approx(40.0, abs=10.0)


def test_a_rule_that_can_t_be_loaded_stops_whoever_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather than be missed; others' groups are not ours."""
    install(monkeypatch, EntryPoint(name="other", value="nowhere:x", group="others"))
    assert not installed_rules()
    install(monkeypatch, EntryPoint(name="lost", value="nowhere:x", group="aliquot.rules"))
    with pytest.raises(RuleError, match="rule lost"):
        installed_rules()


# --- simulate --------------------------------------------------------------------------------------------------------

LISTED = "sn,cpu_milli,memory_mib,gpu,model,labels\n" + "".join(
    f"n{n},64000,262144,2,T4,disktype={'ssd' if n == 2 else 'hdd'};a=b\n" for n in range(3)
)
PODS = "cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n1000,1,1,500,\n1000,1,0,0,\n"


def workload() -> Workload:
    """Three nodes, one with fast disks; four halves and a pod without GPU."""
    machines = read_nodes(LISTED.splitlines(keepends=True), name="nodes")
    listed = read_pods(PODS.splitlines(keepends=True), name="pods", machines=machines)
    arrivals = np.array([1, 0, 0, 0, 0, 0, 0, 0])
    return Workload(machines=machines, needs=listed.needs, pods=listed.pods, arrivals=arrivals)


def replayed(asked: Rules, *, policy: PolicyName = PolicyName.ALIQUOT) -> tuple[list[int], list[str]]:
    """Where pods with GPUs went, and which rules are told of."""
    known: dict[str, Any] = {"policy": policy, "mix": MixSource.GIVEN, "seed": 1}
    replay = begin(workload(), line=None, rules=asked, **known)
    assert list(replay.steps())
    outcome = replay.outcome()
    told = report(outcome, workload=workload(), line=False, seconds=0.0, rules=asked, **known)
    return outcome.where[1:].tolist(), told.rules


def test_simulate_hears_the_same_rules(example: Rules) -> None:
    """The first four go to fast disks, and it is said which rules were heard; published policies are as published."""
    where, told = replayed(example)
    assert (where[:4], 2 in where[4:], told) == ([2, 2, 2, 2], False, ["fast-disk"])
    assert replayed(example, policy=PolicyName.BESTFIT)[1] == []


def test_simulate_places_nobody_where_a_rule_refuses() -> None:
    """Who has no other place fails."""
    picky = Rules({"p": lambda pod, node: Opinion(refused=node.labels["disktype"] != "ssd" and pod.compute == 50)})
    assert replayed(picky)[0] == [2, 2, 2, 2, -1, -1, -1]


def test_pods_without_gpus_are_not_judged() -> None:
    """In the centre no rule is asked of them either."""
    replay = begin(
        workload(),
        policy=PolicyName.ALIQUOT,
        mix=MixSource.GIVEN,
        seed=1,
        line=None,
        rules=Rules({"nobody": lambda *_: Opinion(refused=True)}),
    )
    assert list(replay.steps())
    assert (replay.outcome().where >= 0).tolist() == [True] + [False] * 7


@pytest.mark.usefixtures("example")
def test_the_command_asks_what_is_installed(tmp_path: Path) -> None:
    """And says so in its heading."""
    for name, text in (("nodes", LISTED), ("pods", PODS)):
        (tmp_path / name).write_text(text)
    files = ["--nodes", str(tmp_path / "nodes"), "--pods", str(tmp_path / "pods")]
    told = CliRunner().invoke(main, ["simulate", *files])
    assert (told.exit_code, "ties fresh, rules fast-disk)" in told.stdout) == (0, True)


def test_labels_of_a_trace_are_read_or_refused() -> None:
    """With the line."""
    assert dict(workload().machines[2].labels) == {"disktype": "ssd", "a": "b"}
    with pytest.raises(TraceError, match="line 2"):
        read_nodes(LISTED.replace("disktype=hdd", "disktype", 1).splitlines(keepends=True), name="nodes")


def test_facts_are_read_only() -> None:
    """A rule can't change what the next one is told."""
    with pytest.raises(AttributeError):
        NodeFacts(name="n").name = "m"  # type: ignore[misc]  # that is what is refused


def test_a_rule_is_not_blamed_for_a_busy_machine() -> None:
    """Its limit is of processor time; only who takes ten times as long by the clock is broken off for that."""
    never = threading.Event()
    with alarm(1.0):
        never.wait(1.2)
    with pytest.raises(RuleError, match=r"longer than 0\.02 s"), alarm(0.02):
        never.wait(50.0)
