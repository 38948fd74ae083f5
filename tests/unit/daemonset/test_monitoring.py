"""Alerts and panels ask for what agents and centre really tell, and each alert says what to do."""

from __future__ import annotations

import json
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from aliquot_agent.web.accounts import Owner
from aliquot_agent.web.call_times import OUTCOMES, Histogram
from aliquot_agent.web.metrics import FiguresCollector, SlicesCollector
from aliquot_core.inventory import Health
from aliquot_kube.reflector import Freshness
from aliquot_scheduler.admission.metrics import AdmissionMetrics, Endpoint
from aliquot_scheduler.admission.metrics import Outcome as Answer
from aliquot_scheduler.centre.metrics import CentreCollector
from aliquot_scheduler.certificates.issuing import Use, issue, make_authority
from aliquot_scheduler.certificates.settings import CENTRE
from aliquot_scheduler.extender.metrics import CallMetrics
from aliquot_scheduler.extender.verbs import Outcome, Verb
from aliquot_scheduler.queues.lost.doubts import Kept
from aliquot_scheduler.queues.telling.status import QueueStatus
from aliquot_scheduler.rules.judging import Rules
from aliquot_scheduler.web.handshakes import FailedHandshakes
from aliquot_scheduler.web.tls import Tls, TlsFiles
from support.clocks import VirtualClock
from support.node_figures import FULL
from support.promql import Expression, known, read
from support.reigns import known_reign

FILES = Path(__file__).parents[3] / "daemonset" / "chart" / "files"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((FILES / "alerts.yaml").read_text())["groups"] for rule in group["rules"]
]
DASHBOARD: dict[str, Any] = json.loads((FILES / "dashboard.json").read_text())
# What Prometheus puts to all that it scrapes, and the agents' PodMonitor to theirs.
OF_THE_TARGET = frozenset({"job", "instance", "namespace", "pod", "container", "node"})
DOCS = Path(__file__).parents[3] / "docs"
_TABLE = re.compile(r"metric `(?P<prefix>\w+_)…(?:\{(?P<label>\w+)\})?`")
_METRIC = re.compile(r"`(\w+)…?(\{[\w,]+\})?`")
_TOLD = re.compile(r"\$labels\.(\w+)")
_LEGEND = re.compile(r"\{\{\s*(\w+)\s*\}\}")
_VARIABLE = re.compile(r'(\w+)=~"\$(\w+)"')
Samples = dict[str, dict[str, set[str]]]


class Asked(NamedTuple):
    """An expression, where it stands, and the labels that words beside it show."""

    where: str
    text: str
    shown: frozenset[str]


def of_agents() -> Iterable[Metric]:
    """All that an agent ever tells: every outcome of a call, a driver in trouble."""
    calls = {(rpc, outcome): Histogram() for rpc, outcomes in OUTCOMES.items() for outcome in outcomes}
    sampled = FULL.sampled
    warm = {uuid: msgspec.structs.replace(usage, temperature_celsius=60.0) for uuid, usage in sampled.usages.items()}
    figures = msgspec.structs.replace(
        FULL,
        calls=calls,
        trouble="missing",
        pacing_faults={"ValueError": 1},
        sampled=msgspec.structs.replace(sampled, usages=warm),
    )
    return (*FiguresCollector(figures).collect(), *SlicesCollector(sampled.accounts.slices).collect())


def of_the_centre(folder: Path) -> Iterable[Metric]:
    """All that a leader ever tells: every way in which a call may end."""
    registry = CollectorRegistry()
    calls = CallMetrics(registry)
    for verb in Verb:
        for outcome in Outcome:
            calls.observe(verb, outcome, 0.1)
    asked = AdmissionMetrics(registry)
    for endpoint in Endpoint:
        for answer in Answer:
            asked.observe(endpoint, answer, 0.1)
    FailedHandshakes(registry=registry, clock=VirtualClock())
    Tls(files=certificates(folder), clock=VirtualClock(), look_every=10.0).observe(registry)
    reign = known_reign(rules=Rules({"fast-disk": lambda *_: None}))
    heard = Freshness(contact_age=1.5, list_age=9.0, failures=0, synced=True)
    reign.freshness = lambda: {"nodes": heard}  # type: ignore[method-assign]
    reign.clerks.queue_writer.latest = {"team": QueueStatus()}
    reign.turns.waits.add("team", 2.5)
    reign.clerks.notices.reasons.update({("team", "NoRoom"): 1})
    kept = Kept(amounts=(100, 1000), part=1.0, lasted=30.0)
    reign.turns.register.lost_turns.doubts.came_to_nothing(("team", "u"), kept, pod="u/bad", again=False, now=30.0)
    registry.register(CentreCollector(reign=lambda: reign, leads=lambda: True, over_use=lambda: (), ahead=lambda: 0.0))
    return registry.collect()


def certificates(folder: Path) -> TlsFiles:
    """What a replica serves with."""
    now = time.time()
    authority = make_authority(name="test", now=now, life=3600.0)
    pair = issue(authority, name=CENTRE, hosts=[CENTRE], uses=[Use.SERVER, Use.CLIENT], now=now, life=3600.0)
    parts = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": authority.certificate}
    for name, content in parts.items():
        (folder / name).write_bytes(content)
    certificate, key, trusted = (str(folder / name) for name in parts)
    return TlsFiles(certificate=certificate, key=key, authority=trusted)


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Samples:
    """Each metric there is, its labels, and the values that they have."""
    found: Samples = defaultdict(lambda: defaultdict(set))
    for family in (*of_agents(), *of_the_centre(tmp_path_factory.mktemp("tls"))):
        for sample in family.samples:
            found[sample.name].update({label: set() for label in sample.labels if label not in found[sample.name]})
            for label, value in sample.labels.items():
                found[sample.name][label].add(value)
    found["up"] = {"job": {"aliquot-system/aliquot-agent", "aliquot-system/aliquot-scheduler"}}
    return dict(found)


def documented() -> dict[str, set[str]]:
    """The metrics of the centre's tables by name, each with its labels."""
    found: dict[str, set[str]] = {}
    for line in (DOCS / "centre.md").read_text().partition("\n## Metrics\n")[2].partition("\n## ")[0].splitlines():
        cell = line.strip("| ").partition(" | ")[0]
        if heading := _TABLE.match(cell):
            prefix, of_all = heading["prefix"], set(filter(None, [heading["label"]]))
        elif line.startswith("| `"):
            names, _, ends = cell.partition("each with")
            for name, labels in _METRIC.findall(names):
                for end in re.findall(r"`(\w+)`", ends) or [""]:
                    found[f"{prefix}{name}{end}"] = of_all.union(filter(None, labels.strip("{}").split(",")))
    return found


def test_the_documents_tell_of_each_metric_of_the_centre_and_of_no_other(tmp_path: Path) -> None:
    """By the labels, too, where there is anything to tell of."""
    there: dict[str, set[str]] = {}
    for family in of_the_centre(tmp_path):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        there[name] = {label for sample in family.samples for label in sample.labels} - {"le"}
    told = documented()
    assert told.keys() == there.keys()
    assert {name: told[name] for name, labels in there.items() if labels != told[name]} == {
        # Told of each slice that uses more than granted: here is none.
        "aliquot_queue_over_use_slices": {"queue", "rung"}
    }


def asked() -> Iterator[Asked]:
    """Every expression of alerts and panels."""
    for rule in RULES:
        said = " ".join(rule["annotations"].values())
        yield Asked(rule["alert"], rule["expr"], frozenset(_TOLD.findall(said)))
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            shown = frozenset(_LEGEND.findall(target["legendFormat"]))
            yield Asked(panel["title"], target["expr"].replace("$__rate_interval", "5m"), shown)


@pytest.mark.parametrize("one", [*asked()], ids=lambda one: one.where)
def test_what_is_asked_for_exists(samples: Samples, one: Asked) -> None:
    """Each metric, each label that is chosen by, grouped by or shown, and each value that a label is to have."""
    expression = read(_VARIABLE.sub("", one.text).replace("{,", "{"))
    assert expression.metrics
    assert expression.metrics <= set(samples)
    assert all(known(samples, matcher) for matcher in expression.matchers), expression.matchers
    assert labels_of(expression, samples) >= expression.grouped | {label for label, _ in _VARIABLE.findall(one.text)}
    assert one.shown <= (labels_of(expression, samples) if expression.result is None else expression.result)


def labels_of(expression: Expression, samples: Samples) -> frozenset[str]:
    """What the metrics are told apart by, and what is put to them when they are scraped."""
    labels = OF_THE_TARGET.union(*(samples[metric] for metric in expression.metrics))
    of_the_centre = all(metric.startswith(("aliquot_centre_", "aliquot_queue_")) for metric in expression.metrics)
    return labels - {"node"} if of_the_centre else labels


def test_what_the_centre_counts_is_there_before_it_first_happens(samples: Samples) -> None:
    """Between nothing and a first 1 there is no increase: an alert would sleep through whatever happens once."""
    registry = CollectorRegistry()
    CallMetrics(registry), AdmissionMetrics(registry), FailedHandshakes(registry=registry, clock=VirtualClock())
    registry.register(CentreCollector(reign=known_reign, leads=lambda: True))
    there: Samples = defaultdict(lambda: defaultdict(set))
    for sample in (sample for family in registry.collect() for sample in family.samples):
        for label, value in sample.labels.items():
            there[sample.name][label].add(value)
    watched = {
        (matcher.metric, matcher.label)
        for rule in RULES
        for matcher in read(rule["expr"]).matchers
        if matcher.metric.startswith("aliquot_centre_") and matcher.metric.endswith(("_total", "_count"))
    }
    assert len(watched) >= 4
    assert {each: there[each[0]][each[1]] for each in watched} == {each: samples[each[0]][each[1]] for each in watched}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_each_alert_says_what_to_do(rule: dict[str, Any]) -> None:
    """How bad it is, what is the matter, and a whole sentence for whoever is woken by it."""
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert set(rule["annotations"]) == {"summary", "action"}
    assert len(rule["annotations"]["summary"].split()) >= 4
    assert len(rule["annotations"]["action"].split()) >= 8
    assert rule["annotations"]["action"] != rule["annotations"]["summary"]


def test_no_two_alerts_have_one_name() -> None:
    """Silences go by the name."""
    names = [rule["alert"] for rule in RULES]
    assert len(names) == len(set(names))
    assert all(name.startswith("Aliquot") for name in names)


def test_the_dashboard_s_variables_are_asked_of_metrics_that_exist(samples: Samples) -> None:
    """And every variable that an expression names is one of them."""
    variables = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
    for name in ("node", "namespace"):
        found = re.fullmatch(r"label_values\((\w+), (\w+)\)", variables[name]["query"]["query"])
        assert found is not None
        metric, label = found.groups()
        assert label in {*samples[metric], *OF_THE_TARGET}
    used = {name for one in asked() for _, name in _VARIABLE.findall(one.text)}
    assert used <= set(variables)


def test_panels_do_not_lie_on_each_other() -> None:
    """Each cell of the grid is one panel's."""
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    assert max(x for x, _ in taken) < 24


def test_states_that_alerts_name_are_the_code_s(samples: Samples) -> None:
    """What the figures of a test leave out would be missed above."""
    assert samples["aliquot_gpu_health"]["health"] == set(Health)
    assert samples["aliquot_gpu_processes_without_grant"]["owner"] == set(Owner)
    assert samples["aliquot_centre_extender_duration_seconds_count"]["outcome"] == set(Outcome)
