"""The webhook on a real API server: what comes in, what is refused, and who is harmed when nobody answers."""

from __future__ import annotations

import pytest

from cluster.guarded import Guarded, asking
from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness
from cluster.harness.errors import ApiError
from cluster.harness.pods import pod, shell
from cluster.installed import NAMES
from cluster.refusals import annotated, expect_refused

GATE = {"name": NAMES.gate}


def test_a_pod_that_asks_comes_in_gated(guarded: Guarded, namespace: str) -> None:
    """Behind the gate, for our profile; the node that its author chose has become an affinity."""
    spec = guarded.tried(asking("a", namespace, {"compute": "30"}, node="node1"))["spec"]
    assert (spec["schedulingGates"], spec["schedulerName"], spec.get("nodeName")) == ([GATE], "aliquot", None)
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    field = {"key": "metadata.name", "operator": "In", "values": ["node1"]}
    assert required == {"nodeSelectorTerms": [{"matchFields": [field]}]}


def test_memory_alone_is_best_effort(guarded: Guarded, namespace: str) -> None:
    """The kubelet is given a resource to call us for."""
    (container,) = guarded.tried(asking("a", namespace, {"memory": "800"}))["spec"]["containers"]
    resources = {NAMES.memory: "800", NAMES.best_effort: "1"}
    assert container["resources"] == {"limits": resources, "requests": resources}


def test_a_pod_that_does_not_ask_is_not_touched(guarded: Guarded, namespace: str) -> None:
    """Not even where it has a node."""
    spec = guarded.tried(pod("a", shell("true"), namespace=namespace, node="node1"))["spec"]
    assert (spec.get("schedulingGates"), spec["schedulerName"], spec["nodeName"]) == (
        None,
        "default-scheduler",
        "node1",
    )


SENTENCES = {
    "a unit": ({"compute": "30", "memory": "8Gi"}, {}, "write 8192 for 8Gi"),
    "no compute": ({"compute": "0"}, {}, "0 is less than 1; write at least 1, or leave it out"),
    "negative": ({"compute": "-5"}, {}, "-5 is less than 1; write at least 1, or leave it out"),
    "a fraction": ({"compute": "500m"}, {}, "500m is not a whole number; write whole percent"),
    "too much for its GPUs": ({"compute": "250"}, {"gpus": "2"}, "250 % does not fit on 2 GPUs; ask for at most 200"),
    "too little memory": ({"compute": "30", "memory": "100"}, {}, "less than a CUDA context needs"),
    "a bad annotation": ({"compute": "30"}, {"placement": "near"}, "write pack or spread"),
}


@pytest.mark.parametrize("row", SENTENCES)
def test_what_can_t_be_meant_is_refused_with_what_to_write(guarded: Guarded, namespace: str, row: str) -> None:
    """In our words, also where Kubernetes itself would refuse it."""
    limits, notes, sentence = SENTENCES[row]
    annotations = {NAMES.of(short): text for short, text in notes.items()}
    assert sentence in guarded.refusal(asking("a", namespace, limits, annotations=annotations))


def test_several_problems_are_told_at_once(guarded: Guarded, namespace: str) -> None:
    """One a line."""
    refusal = guarded.refusal(asking("a", namespace, {"compute": "0", "memory": "8Gi"}))
    assert refusal.count("\n- container main, ") == 2


def test_a_pod_too_large_to_be_judged_is_refused_in_words(
    cluster: ClusterHarness, guarded: Guarded, namespace: str
) -> None:
    """What this API server sends begins so that the question's name is known before it ends."""
    large = asking("large", namespace, {"compute": "30"})
    (container,) = large["spec"]["containers"]
    large["spec"]["containers"] = [{**container, "name": f"c{index}"} for index in range(9_000)]
    # 3 MiB within the webhook's 5 s: a crowded machine may need another try.
    cluster.wait_for("a sentence", lambda: "make it smaller: fewer containers" in guarded.refusal(large))


def test_what_is_only_odd_is_warned_of(guarded: Guarded, namespace: str) -> None:
    """The author reads it, and the pod comes in."""
    odd = asking("a", namespace, {"compute": "30"})
    odd["metadata"]["annotations"] = {NAMES.of("gpumodel"): "x"}
    assert guarded.warnings(odd) == [
        "annotation aliquot.dev/gpumodel does nothing: did you mean aliquot.dev/gpu-model?",
    ]


def test_no_pod_comes_in_for_a_scheduler_that_asks_nobody(guarded: Guarded, namespace: str) -> None:
    """It would bind it without a slice, or evict others for it."""
    said = guarded.refusal(asking("a", namespace, {"compute": "30"}, scheduler="volcano"))
    assert "spec.schedulerName: volcano is not known to ask Aliquot" in said


def limit_range(namespace: str) -> Json:
    """Every container of the namespace gets a slice."""
    default = {NAMES.compute: "10", NAMES.memory: "800"}
    item = {"type": "Container", "default": default, "defaultRequest": default}
    meta = {"name": "slices", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": meta, "spec": {"limits": [item]}}


def test_use_none_keeps_a_limit_range_off(cluster: ClusterHarness, guarded: Guarded, namespace: str) -> None:
    """Without the label a pod of the namespace asks for a slice; with it, it asks for nothing and is not gated."""
    cluster.create_pod(limit_range(namespace))
    plain = pod("plain", shell("true"), namespace=namespace)
    cluster.wait_for("the LimitRange", lambda: guarded.tried(plain)["spec"].get("schedulingGates"))
    spec = guarded.tried(pod("declines", shell("true"), namespace=namespace, labels={NAMES.use: "none"}))["spec"]
    assert (spec.get("schedulingGates"), spec["schedulerName"]) == (None, "default-scheduler")
    assert not any(spec["containers"][0]["resources"].values())


def test_a_bound_pod_keeps_what_its_grant_was_made_from(
    cluster: ClusterHarness, guarded: Guarded, namespace: str
) -> None:
    """While it waits its annotations may be mended; by what right it comes in stands from its turn on."""
    made = cluster.create_pod(asking("a", namespace, {"compute": "30"}))
    path = cluster.api.path_of(made)
    cluster.api.patch(path, annotated({NAMES.placement: "pack"}))
    expect_refused(lambda: cluster.api.patch(path, annotated({NAMES.placement: "near"})), by="write pack or spread")

    def stands(note: dict[str, str | None]) -> None:
        said = expect_refused(lambda: cluster.api.patch(path, annotated(note)), by="validate.aliquot.dev")
        assert "can't change any more" in said

    cluster.api.patch(path, annotated({NAMES.preemptible: "true"}))
    guarded.lift(made)
    stands({NAMES.preemptible: "false"})
    guarded.bind(made)
    for key, value in ((NAMES.gpus, "2"), (NAMES.placement, "spread"), (NAMES.placement, None)):
        stands({key: value})
    cluster.api.patch(path, annotated({"note": "x"}))


def test_a_mirror_pod_is_let_be(cluster: ClusterHarness, guarded: Guarded, namespace: str) -> None:
    """A kubelet tells of a static pod that asks for a slice; it stays on its node, ungated."""
    node = cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node9"}})
    mirror = asking(
        "static", namespace, {"compute": "30"}, node="node9", annotations={"kubernetes.io/config.mirror": "x"}
    )
    owner = {"apiVersion": "v1", "kind": "Node", "name": "node9", "uid": node["metadata"]["uid"], "controller": True}
    mirror["metadata"]["ownerReferences"] = [owner]
    made = cluster.api_as("system:node:node9").create(mirror)
    assert (made["spec"]["nodeName"], made["spec"].get("schedulingGates")) == ("node9", None)
    cluster.api.delete(cluster.api.path_of(made), gracePeriodSeconds=0)
    assert guarded.webhook.running


# --- nobody answers --------------------------------------------------------------------------------------------------


# Of pods that ask for nothing: labels, annotations.
SAID_IN_VAIN: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "declines": ({NAMES.use: "none"}, {}),
    "labelled": ({NAMES.queue: "team", NAMES.of("user"): "ann"}, {}),
    "annotated": ({}, {NAMES.gpus: "2", NAMES.of("note"): "x"}),
}


def test_a_dead_webhook_harms_nobody_else(cluster: ClusterHarness, guarded: Guarded, namespace: str) -> None:
    """Other pods come in, ours are refused; those that are in already can still be worked on."""
    waiting = cluster.api.path_of(cluster.create_pod(asking("waiting", namespace, {"compute": "30"})))
    guarded.webhook.kill()
    try:
        cluster.create_pod(pod("other", shell("true"), namespace=namespace))
        for says, (labels, annotations) in SAID_IN_VAIN.items():
            silent = pod(says, shell("true"), namespace=namespace, labels=labels, annotations=annotations)
            path = cluster.api.path_of(cluster.create_pod(silent))
            cluster.api.patch(path, annotated({NAMES.placement: "spread"}))
        assert "failed calling webhook" in guarded.refusal(asking("ours", namespace, {"compute": "30"}))
        assert guarded.refusal(asking("ours", "kube-system", {"compute": "30"})) == ""
        cluster.api.patch(waiting, {"metadata": {"labels": {"a": "b"}, "finalizers": ["a.b/c"]}})
        cluster.api.patch(waiting, {"metadata": {"finalizers": None}})
        guarded.scheduler.patch(waiting, annotated({NAMES.charged: "default"}) | {"spec": {"schedulingGates": None}})
        with pytest.raises(ApiError, match="failed calling webhook"):
            cluster.api.patch(waiting, annotated({NAMES.gpus: "2"}))
        # Policies need nobody who answers.
        expect_refused(lambda: cluster.api.patch(waiting, annotated({NAMES.grant: "{}"})), by="aliquot-guard-grants")
    finally:
        guarded.webhook.start()
        guarded.webhook.wait_ready()
