"""What a pod requires of nodes is asked of every node, so it may be long and not endless."""

from __future__ import annotations

from typing import Any

import pytest

from aliquot_core import node_rules
from aliquot_core.node_rules import MOST_TESTS, MOST_VALUES, LargeAffinityError, Requirement, Wanted, check_affinity
from aliquot_scheduler.admission.settings import AdmissionSettings
from aliquot_scheduler.admission.validation import judge
from aliquot_scheduler.explaining import explain
from aliquot_scheduler.picture.labels import Labels
from support.admitting import container, decoded, written
from support.centre import NAMES, WALL, asks, gpus, make_lease, make_node
from support.queue_stage import GATED, Stage

Json = dict[str, Any]
NODES = 5


def requiring(*terms: Json) -> Json:
    """An affinity to nodes of which one of these terms holds."""
    required = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def expressions(count: int, *, values: int = 1) -> list[Json]:
    """So many different expressions with so many values each, which hold on every node."""
    names = [f"v{number}" for number in range(values)]
    return [{"key": f"k{number}", "operator": "NotIn", "values": names} for number in range(count)]


def fields(count: int) -> list[Json]:
    """The same of nodes' names."""
    return [{"key": "metadata.name", "operator": "NotIn", "values": [f"v{number}"]} for number in range(count)]


JUST: dict[str, Json] = {
    "one term": requiring({"matchExpressions": expressions(MOST_TESTS)}),
    "many terms": requiring(*({"matchExpressions": [test]} for test in expressions(MOST_TESTS))),
    "many values": requiring({"matchExpressions": expressions(2, values=MOST_VALUES // 2)}),
}
ENDLESS: dict[str, tuple[Json, str]] = {
    "one term": (
        requiring({"matchExpressions": expressions(MOST_TESTS + 1)}),
        "257 terms or expressions are more than 256",
    ),
    "many terms": (
        requiring(*({"matchExpressions": [test]} for test in expressions(10_000))),
        "10000 terms or expressions are more than 256",
    ),
    "terms that say nothing": (requiring(*[{}] * 300), "300 terms or expressions are more than 256"),
    "names and labels together": (
        requiring({"matchExpressions": expressions(200), "matchFields": fields(100)}),
        "300 terms or expressions are more than 256",
    ),
    "many values": (requiring({"matchExpressions": expressions(1, values=50_000)}), "50000 values are more than 4096"),
    "many values in all": (
        requiring(*({"matchExpressions": [test]} for test in expressions(5, values=1_000))),
        "5000 values are more than 4096",
    ),
}


@pytest.mark.parametrize("row", ENDLESS)
def test_an_endless_affinity_is_refused_at_creation(row: str) -> None:
    """With what is too much, where, and what to write instead; whoever asks for no slice may have it."""
    affinity, why = ENDLESS[row]
    sentence = f"spec.affinity.nodeAffinity: {why}; label the nodes that are meant, and require that label"
    verdict = judge(
        decoded(written(container(compute="30"), affinity=affinity)), names=NAMES, settings=AdmissionSettings()
    )
    assert [str(problem) for problem in verdict.problems] == [sentence]
    other = judge(decoded(written(container(), affinity=affinity)), names=NAMES, settings=AdmissionSettings())
    assert other.problems == ()


@pytest.mark.parametrize("row", JUST)
def test_a_long_one_passes(row: str) -> None:
    """The limits themselves are no problem."""
    pod = decoded(written(container(compute="30"), affinity=JUST[row]))
    assert judge(pod, names=NAMES, settings=AdmissionSettings()).problems == ()


@pytest.mark.parametrize("affinity", [{}, {"nodeAffinity": "x"}, {"nodeAffinity": {}}, {"podAffinity": {}}])
def test_what_says_nothing_of_nodes_or_can_t_be_read_is_not_ours_to_refuse(affinity: Json) -> None:
    """kube-scheduler says what is wrong with it."""
    check_affinity(asks("p", 30, 1_000, spec={"affinity": affinity}))
    with pytest.raises(LargeAffinityError):
        check_affinity(asks("p", 30, 1_000, spec={"affinity": ENDLESS["many terms"][0]}))


@pytest.fixture(name="made")
def _made(monkeypatch: pytest.MonkeyPatch) -> list[Requirement]:
    """The tests that were made of nodes."""
    made: list[Requirement] = []
    holds = node_rules._holds

    def counted(test: Requirement, labels: dict[str, str]) -> bool:
        made.append(test)
        return holds(test, labels)

    monkeypatch.setattr(node_rules, "_holds", counted)
    return made


@pytest.mark.parametrize("row", ENDLESS)
def test_who_came_past_the_webhook_waits_and_costs_nothing(row: str, made: list[Requirement]) -> None:
    """No test is made of any node; filter and `explain` say why it waits, and the next pod has its turn."""
    affinity, why = ENDLESS[row]
    stage = Stage({}, nodes=(2,) * NODES)
    pod = stage.submit("p", 50, spec={"affinity": affinity})
    stage.submit("q", 50)
    assert stage.round() == ["q"]
    names = list(stage.picture.nodes)
    filtered = stage.desk.filter(pod, names, now=stage.now)
    assert not filtered.nodes
    nodes = [make_node(name, gpus(name, 2)) for name in names]
    leases = [make_lease(name) for name in names]
    found = explain(pod, nodes=nodes, leases=leases, pods=[pod], names=NAMES, wall=WALL)
    assert all(why in said for said in (*filtered.unresolvable.values(), found.summary))
    assert len(filtered.unresolvable) == NODES
    assert made == []


@pytest.mark.parametrize("row", JUST)
def test_a_long_one_is_asked_of_all_nodes_at_once(
    row: str, made: list[Requirement], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once: others that say the same, further turns and filters ask nothing; who has changed is asked alone."""
    asked: list[Wanted] = []
    suiting = Labels.suiting

    def counted(labels: Labels, wanted: Wanted, *, rows: int) -> Any:
        asked.append(wanted)
        return suiting(labels, wanted, rows=rows)

    monkeypatch.setattr(Labels, "suiting", counted)
    stage = Stage({}, nodes=(2,) * NODES)
    for uid in ("p", "q", "r"):
        stage.submit(uid, 50, spec={"affinity": JUST[row], **GATED})
    assert stage.round() == ["p", "q", "r"]
    for uid in ("p", "q", "r"):
        assert stage.desk.filter(stage.pods[uid], list(stage.picture.nodes), now=stage.now).nodes
    assert (len(asked), made) == (1, [])
    stage.picture.node_seen(make_node("n0", gpus("n0", 2), labels={"k0": "v0"}))
    stage.submit("s", 50, spec={"affinity": JUST[row], **GATED})
    assert stage.round() == ["s"]
    assert len(asked) == 1
    assert 0 < len(made) <= MOST_TESTS
