"""What is filled in when a pod is created: the contract's defaults, and nothing else."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_core.errors import UserError
from aliquot_core.objects import Pod
from aliquot_core.request import PodRequest, parse_request
from aliquot_scheduler.admission.mutation import mutate
from aliquot_scheduler.admission.review import MalformedReviewError
from support.admitting import NAMES, PROFILE, Json, container, decoded, mutated, written

GATE = {"name": "aliquot.dev/queue"}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def with_requests(**asked: str) -> Json:
    """A container as the API server has completed it: requests are the limits."""
    return container(**asked, requests=asked)


def test_a_pod_that_asks_is_gated_and_given_to_our_profile() -> None:
    """Its resources stay as they are: memory that is left out stays out."""
    before = written(with_requests(compute="30"))
    after = mutated(before)
    assert after["spec"].pop("schedulingGates") == [GATE]
    assert after["spec"].pop("schedulerName") == PROFILE
    assert after == before


def test_a_pod_that_only_requests_is_held_too() -> None:
    """It is refused later; were it taken for a pod that asks for nothing, it would go round the queue."""
    spec = mutated(written(container(requests={"compute": "30"})))["spec"]
    assert spec["schedulingGates"] == [GATE]


@pytest.mark.parametrize("scheduler", ["", "default-scheduler"])
def test_pods_of_the_default_scheduler_become_ours(scheduler: str) -> None:
    """The API server writes `default-scheduler` where the author wrote nothing."""
    assert mutated(written(container(compute="30"), schedulerName=scheduler))["spec"]["schedulerName"] == PROFILE


def test_who_names_another_scheduler_keeps_it() -> None:
    """It may have our extender as well."""
    assert mutated(written(container(compute="30"), schedulerName="volcano"))["spec"]["schedulerName"] == "volcano"


def test_other_gates_stay() -> None:
    """Ours comes last, and only once."""
    spec = mutated(written(container(compute="30"), schedulingGates=[{"name": "a.b/c"}]))["spec"]
    assert spec["schedulingGates"] == [{"name": "a.b/c"}, GATE]
    assert mutated(written(container(compute="30"), schedulingGates=[GATE]))["spec"]["schedulingGates"] == [GATE]


def test_memory_without_compute_becomes_best_effort() -> None:
    """The one id goes into limits and requests of just those containers, init containers too."""
    pod = written(
        container("a", memory="800"),
        container("b", memory="800", requests={"memory": "800"}),
        container("c", memory="800", compute="10"),
        container("d", memory="800", best_effort="1"),
        container("e"),
        inits=[container("f", memory="800")],
    )
    spec = mutated(pod)["spec"]
    both = {"limits": {"aliquot.dev/best-effort": "1"}, "requests": {"aliquot.dev/best-effort": "1"}}
    found = {
        each["name"]: {
            section: {key: value for key, value in named.items() if key == NAMES.best_effort}
            for section, named in each.get("resources", {}).items()
        }
        for each in (*spec["initContainers"], *spec["containers"])
    }
    only_limit = {"limits": both["limits"]}
    assert found == {"a": both, "b": both, "c": {"limits": {}}, "d": only_limit, "e": {}, "f": both}


# --- the node that the author chose ----------------------------------------------------------------------------------

FIELD = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
ZONE = {"key": "zone", "operator": "In", "values": ["a"]}
OTHER = {"key": "metadata.name", "operator": "In", "values": ["n2"]}


def node_affinity(terms: list[Any]) -> Json:
    """An affinity with these alternatives, and what else an author may have written."""
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    return {
        "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}, preferred: [{"weight": 1}]},
        "podAntiAffinity": {"kept": True},
    }


AFFINITIES: dict[str, tuple[Json, list[Any]]] = {
    "none": ({}, [{"matchFields": [FIELD]}]),
    "of pods only": ({"affinity": {"podAntiAffinity": {}}}, [{"matchFields": [FIELD]}]),
    "of nodes, preferred only": ({"affinity": {"nodeAffinity": {}}}, [{"matchFields": [FIELD]}]),
    "two alternatives": (
        {"affinity": node_affinity([{"matchExpressions": [ZONE]}, {"matchFields": [OTHER]}])},
        [{"matchExpressions": [ZONE], "matchFields": [FIELD]}, {"matchFields": [OTHER, FIELD]}],
    ),
    "an alternative that matches nothing": (
        {"affinity": node_affinity([{}, {"matchExpressions": [ZONE]}])},
        [{}, {"matchExpressions": [ZONE], "matchFields": [FIELD]}],
    ),
    "no alternative at all": ({"affinity": node_affinity([])}, []),
}


@pytest.mark.parametrize("row", AFFINITIES)
def test_a_chosen_node_becomes_an_affinity(row: str) -> None:
    """It narrows every alternative; what else the affinity says stays, and the pod is no longer bound."""
    spec, terms = AFFINITIES[row]
    after = mutated(written(container(compute="30"), nodeName="n1", **deepcopy(spec)))["spec"]
    assert "nodeName" not in after
    assert after["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"] == terms
    rest = deepcopy(after["affinity"])
    rest["nodeAffinity"].pop(REQUIRED)
    wanted = deepcopy(spec.get("affinity", {}))
    wanted.setdefault("nodeAffinity", {}).pop(REQUIRED, None)
    assert rest == wanted


@pytest.mark.parametrize("affinity", [5, {"nodeAffinity": 5}, {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": 5}}}])
def test_an_affinity_that_is_none_is_malformed(affinity: Any) -> None:
    """No API server sends it, and it must not raise anything else."""
    with pytest.raises(MalformedReviewError, match="affinity"):
        mutated(written(container(compute="30"), nodeName="n1", affinity=affinity))


# --- pods that decline -----------------------------------------------------------------------------------------------


def test_a_pod_that_declines_is_rid_of_our_resources() -> None:
    """What a LimitRange put on its containers is gone, what others are stays; no gate, no other scheduler."""
    ours = {"aliquot.dev/compute": "10", "aliquot.dev/memory": "800", "aliquot.dev/best-effort": "1"}
    before = written({"name": "a", "resources": {"limits": {**ours, "cpu": "1"}, "requests": {**ours, "cpu": "1"}}})
    before["spec"]["initContainers"] = [{"name": "b", "resources": {"limits": dict(ours)}}]
    before["metadata"]["labels"] = {"aliquot.dev/use": "none"}
    after = mutated(before)
    assert after["spec"] == {
        "containers": [{"name": "a", "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}}],
        "initContainers": [{"name": "b", "resources": {"limits": {}}}],
    }


# --- what must hold of any pod ---------------------------------------------------------------------------------------

AMOUNTS = st.sampled_from(["1", "30", "250", "8k", "8Gi", "-5", "0", "x"])
OURS = st.dictionaries(st.sampled_from(NAMES.resources()), AMOUNTS)
OTHERS = st.dictionaries(st.sampled_from(["cpu", "memory", "nvidia.com/gpu", "other.dev/compute"]), AMOUNTS)
TERMS = st.lists(
    st.fixed_dictionaries({}, optional={"matchExpressions": st.just([ZONE]), "matchFields": st.just([OTHER])}),
    max_size=3,
)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "nodeName": st.sampled_from(["", "n1"]),
        "schedulerName": st.sampled_from(["", "default-scheduler", PROFILE, "other"]),
        "schedulingGates": st.lists(st.sampled_from([GATE, {"name": "a.b/c"}]), max_size=2, unique_by=str),
        "affinity": TERMS.map(node_affinity) | st.just({}),
    },
)


def containers(resources: st.SearchStrategy[Json]) -> st.SearchStrategy[list[Json]]:
    """Containers with these limits and requests, and some without any."""
    sections = st.fixed_dictionaries({}, optional={"limits": resources, "requests": resources})
    return st.lists(st.fixed_dictionaries({"name": st.just("c")}, optional={"resources": sections}), max_size=3)


def pods(resources: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    """Pods of such containers."""
    labels = st.sampled_from([{}, {"aliquot.dev/use": "none"}, {"aliquot.dev/use": "x"}, {"aliquot.dev/queue": "q"}])
    return st.builds(
        lambda apps, inits, spec, labels: {
            "metadata": {"labels": labels},
            "spec": {"containers": apps, "initContainers": inits, **spec},
        },
        containers(resources),
        containers(resources),
        SPECS,
        labels,
    )


@given(pods(st.builds(lambda ours, others: ours | others, OURS, OTHERS)))
def test_twice_is_once(pod: Json) -> None:
    """The API server calls again after other webhooks, and each call must find nothing left to do."""
    once = mutated(pod)
    assert mutate(decoded(once), once, names=NAMES, scheduler_name=PROFILE) == []


@given(pods(OTHERS))
def test_pods_that_do_not_ask_are_never_touched(pod: Json) -> None:
    """Whatever labels, gates and nodes they have."""
    assert mutate(decoded(pod), pod, names=NAMES, scheduler_name=PROFILE) == []


@given(pods(OURS | OTHERS))
def test_what_is_filled_in_does_not_change_what_is_asked(pod: Json) -> None:
    """The parser reads the same request before and after: defaults only make others understand it."""
    assert read(decoded(mutated(pod))) == read(decoded(pod))


def read(pod: Pod) -> PodRequest | str:
    """What is asked, or what is wrong with it."""
    try:
        return parse_request(pod, names=NAMES)
    except UserError as problem:
        return str(problem)
