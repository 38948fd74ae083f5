"""Rules that settings write in CEL: heard as installed ones are, and looked at as a whole before anybody is placed."""

from __future__ import annotations

import json
import logging
import re
import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from aliquot_cli.main import main
from aliquot_cli.replica_settings import read_settings
from aliquot_core.request import parse_request
from aliquot_core.settings import SettingsError, Sources, read_toml
from aliquot_scheduler.explaining import explain
from aliquot_scheduler.fit.demand import demand_of
from aliquot_scheduler.fit.finder import Finder
from aliquot_scheduler.rules import expressions, installed
from aliquot_scheduler.rules.expressions import Expression, ExpressionRule, RuleSettings
from aliquot_scheduler.rules.installed import rules_in_force
from aliquot_scheduler.rules.judging import Rules
from aliquot_scheduler.rules.limit import RuleError
from aliquot_scheduler.rules.rule import NodeFacts, Opinion, PodFacts, Rule
from support.centre import NAMES, WALL, asks, gpus, make_lease, make_node, picture_with

EXAMPLE = Path(__file__).parents[3] / "examples" / "own-rule"
WISH = {"example.org/disk": "ssd"}
SLOW = "its disks are slow"


def resolved(*written: dict[str, Any]) -> RuleSettings:
    """As the centre reads them."""
    sources = Sources(file={"rules": {"expressions": list(written)}}, file_name="a.toml")
    return sources.resolve("rules", RuleSettings).value


@pytest.fixture
def example() -> RuleSettings:
    """The settings of examples/own-rule."""
    table = read_toml((EXAMPLE / "rules.toml").read_text(), name="rules.toml")
    return Sources(file=table, file_name="rules.toml").resolve("rules", RuleSettings).value


def test_the_example_in_cel_says_what_the_one_in_python_says(
    example: RuleSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each node and pod, whichever disks they have and want."""
    monkeypatch.syspath_prepend(EXAMPLE)
    monkeypatch.delitem(sys.modules, "fast_disk_rule", raising=False)
    in_python: Rule = EntryPoint(name="x", value="fast_disk_rule:fast_disk", group="aliquot.rules").load()
    cost, refusal = map(ExpressionRule, example.expressions)
    for labels in ({}, {"disktype": "hdd"}, {"disktype": "ssd"}):
        for notes in ({}, WISH):
            pod, node = PodFacts(annotations=notes), NodeFacts(name="n", labels=labels)
            assert (refusal(pod, node) or cost(pod, node)) == in_python(pod, node)


def test_the_centre_prefers_refuses_and_explains_by_an_expression(example: RuleSettings) -> None:
    """A wish leaves no other node; without one the fast node is the cheaper."""
    rules = rules_in_force(example)
    nodes = [make_node(name, gpus(name, 2), labels={"disktype": disk}) for name, disk in (("n1", "hdd"), ("n2", "ssd"))]
    picture = picture_with(*nodes)
    finder = Finder(picture=picture, names=NAMES, rules=rules)
    rows = [picture.nodes[name].row for name in ("n1", "n2")]
    easy, picky = asks("u", 30, 1_000), asks("v", 30, 1_000, annotations=WISH)
    found = finder.survey(easy, demand_of(parse_request(easy, names=NAMES)))
    assert found.cost[rows].tolist() == pytest.approx([0.2, 0.0])
    found = finder.survey(picky, demand_of(parse_request(picky, names=NAMES)))
    assert found.fits[rows].tolist() == [False, True]
    leases = [make_lease(name) for name in ("n1", "n2")]
    told = {
        pod.metadata.uid: {
            one.node: one.why
            for one in explain(
                pod, nodes=nodes, leases=leases, pods=[pod], names=NAMES, wall=WALL, rules=rules_in_force(example)
            ).nodes
        }
        for pod in (easy, picky)
    }
    assert told["u"]["n1"] == f"has room; 0.2 GPUs dearer by rule fast-disk: {SLOW}"
    assert told["v"]["n1"] == f"rule fast-disk-wanted: {SLOW}, and the pod wants fast ones"


@pytest.mark.parametrize(
    ("refuse", "cost", "said"),
    [
        ("pod.gpus > 1", "", True),
        ("pod.compute < 50 && pod.memory >= 1000", "", False),
        ("pod.namespace == 'team' && pod.cores > 2", "", True),
        ("pod.labels[?'tier'].orValue('') == 'low' && node.name.startsWith('n')", "", True),
        ("!node.models.exists(m, m.contains('T4'))", "", False),
        ("", "double(pod.gpus) / 4.0", 0.5),
        ("", "pod.compute * 0.01", 1.0),
        ("", "node.name == 'n1' ? 2 : 0", 2.0),
        ("node.labels[?'old'].hasValue()", "0.25", 0.25),
        ("", "0.0", False),
    ],
)
def test_an_expression_reads_what_rules_are_told(refuse: str, cost: str, *, said: bool | float) -> None:
    """All of it, of pod and node; numbers are a cost, in GPUs."""
    settings = resolved({"name": "x", "refuse": refuse, "cost": cost, "why": "so"})
    facts = PodFacts(namespace="team", labels={"tier": "low"}, gpus=2, compute=100, memory=500, cores=4.0)
    opinion = ExpressionRule(settings.expressions[0])(facts, NodeFacts(name="n1", models=("T4", "T4")))
    expected = Opinion(refused=True, why="so") if said is True else Opinion(cost=said, why="so") if said else None
    assert opinion == expected


BAD: list[tuple[dict[str, Any], str]] = [
    ({"name": "x", "cost": "1 +"}, "rule x, cost: can't be understood near: +"),
    ({"name": "x", "refuse": "node.lables == {}"}, "rule x, refuse: node.lables is not known; known are node.name, "),
    ({"name": "x", "refuse": "pods.gpus > 1"}, "rule x, refuse: pods is not known; known are pod, node"),
    ({"name": "x", "refuse": "now() > 1"}, "now() is not understood"),
    (
        {"name": "x", "refuse": "node.labels['a'] == 'b'"},
        "no such key: a; let refuse be true or false and cost",
    ),
    ({"name": "x", "refuse": "true", "cost": "node.labels['a']"}, "no such key: a"),
    ({"name": "x", "refuse": "1"}, "expected true or false, not int"),
    ({"name": "x", "cost": "'a'"}, "expected a number, not 'a'"),
    ({"name": "x", "cost": "true"}, "expected a number, not True"),
    ({"name": "x", "cost": "1 / (pod.gpus - 1)"}, "something is divided by nothing"),
    (
        {"name": "x", "cost": "2.5"},
        "rule x, cost: a pod and a node without labels cost 2.5; let it be from 0 to 2 GPUs",
    ),
    ({"name": "x", "cost": "-1"}, "rule x, cost: a pod and a node without labels cost -1; let it be from 0 to 2 GPUs"),
    ({"name": "x"}, "rule x has neither refuse nor cost"),
    ({"name": "X!", "cost": "1"}, "matching regex"),
    ({"name": "x", "cots": "1"}, "unknown field cots"),
    ({"cost": "1"}, "missing required field name"),
    ({"name": "x", "cost": 1}, "expected text"),
]


@pytest.mark.parametrize(("written", "said"), BAD)
def test_what_could_not_be_asked_is_refused_at_start(written: dict[str, Any], said: str) -> None:
    """With the file, the rule and its part, and what to do."""
    with pytest.raises(SettingsError) as caught:
        resolved(written)
    assert str(caught.value).startswith("a.toml [rules] expressions: ")
    assert said in str(caught.value)
    assert caught.value.remedy


@pytest.fixture
def no_logging(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process's own logging is nothing for all tests after it."""
    monkeypatch.setattr("aliquot_cli.running.configure_logging", lambda _: None)


@pytest.mark.usefixtures("no_logging")
def test_the_centre_does_not_start_with_a_wrong_expression(tmp_path: Path) -> None:
    """Nor does `aliquot config` call it good; both exit with 4."""
    file = tmp_path / "aliquot.toml"
    file.write_text("[[rules.expressions]]\nname = 'x'\ncost = 'pod.gpu * 0.1'\n")
    done = [CliRunner().invoke(main, [command, "--config", str(file)]) for command in ("config", "scheduler")]
    assert [one.exit_code for one in done] == [4, 4]
    assert all(f"{file} [rules] expressions" in one.stderr for one in done)
    assert all("pod.gpu is not known; known are pod.namespace, " in one.stderr for one in done)


@pytest.mark.usefixtures("no_logging")
def test_the_centre_reads_expressions_from_file_and_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a variable they are JSON: so a chart's values give them."""
    file = tmp_path / "aliquot.toml"
    file.write_text((EXAMPLE / "rules.toml").read_text())
    names = [one.name for one in read_settings(file=str(file), flags={}).rules.expressions]
    assert names == ["fast-disk", "fast-disk-wanted"]
    monkeypatch.setenv("ALIQUOT_RULES_EXPRESSIONS", json.dumps([{"name": "y", "cost": "size([1, 2]) == 2 ? 1 : 0"}]))
    assert read_settings(file=str(file), flags={}).rules.expressions == (
        Expression(name="y", cost="size([1, 2]) == 2 ? 1 : 0"),
    )
    monkeypatch.setenv("ALIQUOT_RULES_EXPRESSIONS", '[{"name": "y"')
    with pytest.raises(SettingsError, match=r"ALIQUOT_RULES_EXPRESSIONS.*expected a list"):
        read_settings(file=str(file), flags={})


def test_two_rules_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever was meant; a name that is installed is taken too."""
    with pytest.raises(SettingsError, match="two rules are named x"):
        resolved({"name": "x", "cost": "1"}, {"name": "x", "cost": "2"})
    point = EntryPoint(name="x", value="builtins:len", group="aliquot.rules")
    monkeypatch.setattr(installed, "entry_points", lambda *, group: EntryPoints([point]).select(group=group))
    with pytest.raises(RuleError, match="rule x: a rule of that name is installed"):
        rules_in_force(resolved({"name": "x", "cost": "1"}))


ENDLESS = "'" + "a" * 200 + "'.matches('(a+)+b')"


def test_an_expression_without_end_is_refused_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather than keep the centre from starting."""
    monkeypatch.setattr(expressions, "_TRIAL_SECONDS", 0.1)
    with pytest.raises(SettingsError, match=r"rule x: it took longer than 0\.1 s"):
        resolved({"name": "x", "refuse": ENDLESS})


def test_an_expression_that_fails_or_does_not_end_on_some_node_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """It is silent for that pod and told, and set aside if three times in a row it takes too long; others are heard."""
    text = "node.name == 'n2' && (node.labels['gone'] == '' || " + ENDLESS + ")"
    settings = resolved(
        {"name": "bad", "refuse": text},
        {"name": "good", "cost": "1"},
        {"name": "worded", "cost": "node.name == 'n2' ? node.labels['gone'] : 0"},
    )
    rules = rules_in_force(settings)
    nodes = [NodeFacts(name="n1"), NodeFacts(name="n2")]
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            judged = rules.judge(PodFacts(), nodes)
            assert {name: (one.refused, one.cost) for name, one in judged.items()} == {"n1": ("", 1.0), "n2": ("", 1.0)}
    assert (rules.names, rules.set_aside) == (["good", "worded"], {"bad"})
    said = [record.getMessage() for record in caplog.records]
    assert [sum(one.startswith(f"rule {name} has failed: ") for one in said) for name in ("bad", "worded")] == [3, 2]


@pytest.mark.parametrize(
    ("written", "cost"),
    [
        ({"refuse": "int(pod.labels[?'tier'].orValue('0')) > 3", "cost": "0.1"}, None),
        ({"cost": "0.1 * double(size(pod.labels))"}, 2.0),
        ({"cost": "pod.cores / 64.0"}, 2.0),
        ({"cost": "1.0 - 0.1 * double(size(pod.labels))"}, 0.0),
    ],
)
def test_no_pod_ends_a_rule_by_what_is_written_on_it(written: dict[str, str], cost: float | None) -> None:
    """It is judged as far as the rule has a value; all others are judged by the rule as before."""
    rules = rules_in_force(resolved({"name": "x"} | written))
    node, plain = NodeFacts(name="n"), PodFacts(labels={"tier": "1"}, cores=16.0)
    before = rules.judge(plain, [node])
    wordy = PodFacts(labels={"tier": "abc"} | {f"k{number}": "v" for number in range(30)}, cores=190.0)
    expected = {} if cost is None else {"n": cost}
    for _ in range(4):
        assert {name: one.cost for name, one in rules.judge(wordy, [node]).items()} == expected
    assert rules.judge(plain, [node]) == before != {}


def test_what_reads_nothing_of_pods_is_asked_once_for_a_node() -> None:
    """And again when the node is another; what reads of pods is asked of each."""
    node_alone = ExpressionRule(Expression(name="x", cost="node.labels[?'a'].orValue('') == '' ? 0.5 : 0.0"))
    of_both = ExpressionRule(Expression(name="x", cost="double(pod.gpus) * size(node.labels)"))
    old, new = NodeFacts(name="n"), NodeFacts(name="n", labels={"a": "b"})
    assert node_alone(PodFacts(), old) == Opinion(cost=0.5)
    assert node_alone(PodFacts(), old) is node_alone(PodFacts(gpus=1), old)
    assert node_alone(PodFacts(), new) is None
    assert [of_both(PodFacts(gpus=count), new) for count in (1, 2)] == [Opinion(cost=1.0), Opinion(cost=2.0)]


# --- simulate --------------------------------------------------------------------------------------------------------

NODES = "sn,cpu_milli,memory_mib,gpu,model,labels\n" + "".join(
    f"n{n},64000,262144,2,T4,disktype={'ssd' if n == 2 else 'hdd'}\n" for n in range(3)
)
PODS = "cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,scheduled_time,deletion_time\n" + "".join(
    f"1000,1,1,1000,,{n},{n},{n + 100}\n" for n in range(4)
)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Three nodes of two GPUs, one of them with fast disks; four pods that want a GPU at once."""
    (tmp_path / "nodes").write_text(NODES)
    (tmp_path / "pods").write_text(PODS)
    rule = '[[rules.expressions]]\nname = \'fast-only\'\nrefuse = \'node.labels[?"disktype"].orValue("") != "ssd"\'\n'
    (tmp_path / "aliquot.toml").write_text(rule)
    return ["simulate", "--nodes", str(tmp_path / "nodes"), "--pods", str(tmp_path / "pods")]


def told(*arguments: str) -> Any:
    """What the command says in JSON."""
    done = CliRunner().invoke(main, [*arguments, "-o", "json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_simulate_hears_expressions_of_its_settings(files: list[str], tmp_path: Path) -> None:
    """Two of many find room where only one node may be used; without the settings six do."""
    ruled = told(*files, "--config", str(tmp_path / "aliquot.toml"))
    assert (ruled["placed"], ruled["rules"]) == (2, ["fast-only"])
    plain = told(*files)
    assert (plain["placed"], plain["rules"]) == (6, [])


def test_simulate_in_time_hears_them_too(files: list[str], tmp_path: Path) -> None:
    """Of four pods two wait until the first ones have ended; without the rule none does."""
    timed = [*files, "--time", "--policy", "aliquot"]
    (ruled,) = told(*timed, "--config", str(tmp_path / "aliquot.toml"))
    (plain,) = told(*timed)
    assert ruled["started"] == plain["started"] == 4
    assert (ruled["wait"]["mean"] > 40.0, plain["wait"]["mean"]) == (True, 0.0)


def test_simulate_says_a_wrong_expression_before_it_reads_anything(files: list[str], tmp_path: Path) -> None:
    """As the centre would."""
    (tmp_path / "aliquot.toml").write_text("[[rules.expressions]]\nname = 'x'\ncost = ')'\n")
    done = CliRunner().invoke(main, [*files, "--config", str(tmp_path / "aliquot.toml")])
    assert done.exit_code == 4
    assert "rule x, cost: can't be understood" in done.stderr


def test_simulate_says_which_rule_fails_and_why(files: list[str], tmp_path: Path) -> None:
    """Once; below the result it is counted, and pods lie where they would."""
    bad = "node.name != 'n' && node.labels['gone'] == ''"
    (tmp_path / "aliquot.toml").write_text(f'[[rules.expressions]]\nname = "bad"\nrefuse = "{bad}"\n')
    once = "aliquot: rule bad has failed: CelError('no such key: gone'); such a pod is placed without it"
    for more in ((), ("--time", "--policy", "aliquot")):
        done = CliRunner().invoke(main, [*files, "--config", str(tmp_path / "aliquot.toml"), *more])
        assert done.exit_code == 0, done.output
        assert [line for line in done.stderr.splitlines() if line.startswith("aliquot: ")] == [once]
        assert re.search(r"rules that failed: bad [1-9]\d* times", done.stdout)
    ruled = told(*files, "--config", str(tmp_path / "aliquot.toml"))
    assert (ruled["placed"], ruled["rules"], [*ruled["rule_failures"]]) == (6, ["bad"], ["bad"])


def test_simulate_says_which_rule_takes_too_long_and_is_asked_no_more(files: list[str], tmp_path: Path) -> None:
    """Told when it fails first, and when it is set aside."""
    bad = f"node.name != 'n' && {ENDLESS}"
    (tmp_path / "aliquot.toml").write_text(f'[[rules.expressions]]\nname = "bad"\nrefuse = "{bad}"\n')
    done = CliRunner().invoke(main, [*files, "--config", str(tmp_path / "aliquot.toml")])
    assert done.exit_code == 0, done.output
    first, last = (line for line in done.stderr.splitlines() if line.startswith("aliquot: "))
    assert first.startswith("aliquot: rule bad has failed: RuleTooSlowError(")
    assert last == "aliquot: rule bad has taken too long three times in a row, and is asked no more"
    assert "rules that failed: bad 3 times" in done.stdout


@pytest.mark.parametrize("times", [(), ("--time",)], ids=["", "time"])
def test_rules_about_labels_are_warned_of_where_the_list_has_none(
    files: list[str], tmp_path: Path, times: tuple[str, ...]
) -> None:
    """Every node is then one without; a rule that looks at other things, or a list that has labels, is no matter."""
    asked = [*files, "--config", str(tmp_path / "aliquot.toml"), *times]
    warning = f"{tmp_path / 'nodes'} has no labels of nodes (column labels), which rules may look at: fast-only"
    assert warning not in CliRunner().invoke(main, asked).stderr
    (tmp_path / "nodes").write_text(NODES.replace("disktype=ssd", "").replace("disktype=hdd", ""))
    assert warning in CliRunner().invoke(main, asked).stderr
    assert "labels" not in CliRunner().invoke(main, [*asked, "--policy", "fifo" if times else "bestfit"]).stderr
    (tmp_path / "aliquot.toml").write_text("[[rules.expressions]]\nname = 'x'\ncost = 'double(pod.gpus) * 0.1'\n")
    assert "labels" not in CliRunner().invoke(main, asked).stderr


def test_who_wrote_a_function_is_taken_to_look_at_labels() -> None:
    """It need not say what it reads; an expression that takes a node as a whole may look at any of it."""
    written: dict[str, Rule] = {
        "labels": ExpressionRule(Expression(name="x", refuse="size(node.labels) > 0")),
        "name": ExpressionRule(Expression(name="x", refuse="node.name == pod.labels[?'a'].orValue('')")),
        "whole": ExpressionRule(Expression(name="x", refuse="node == pod")),
        "python": lambda *_: None,
    }
    assert Rules(written).readers_of_labels == ["labels", "python", "whole"]
