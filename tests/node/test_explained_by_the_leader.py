"""`aliquot explain` goes by the settings of who leads."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from aliquot_core.names import PACE_LEASE, Names
from support.small_machine import SmallMachine, small_machine

NAMES = Names()
QUEUE = Path(__file__).parents[2] / "daemonset" / "manifests" / "05-queue.yaml"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
QUEUES = f"/apis/{NAMES.domain}/v1alpha1/queues"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMES.namespace}/leases"


def user_of(machine: SmallMachine, pod: str) -> str:
    """Whose the pod is, as somebody is told whose own settings name another label."""
    own = machine.environment(ALIQUOT_QUEUES_USER_LABEL="own/user")
    told = machine.run("explain", pod, "-o", "json", env=own)
    assert told.returncode == 0, told.stderr
    user: str = json.loads(told.stdout)["queue"]["user"]
    return user


def test_places_are_told_by_the_settings_of_who_leads(tmp_path: Path) -> None:
    """Whatever the caller's own are: whose a pod is decides who comes before whom."""
    definition = next(one for one in yaml.safe_load_all(QUEUE.read_text()) if one["kind"] == "CustomResourceDefinition")
    said = {NAMES.settings: json.dumps({"queues": {"user_label": "lab/user"}})}
    labels = {NAMES.queue: "lab", "lab/user": "ann", "own/user": "bob"}
    with small_machine(tmp_path) as machine:
        machine.api.post(DEFINITIONS, definition).ok()
        machine.api.post(QUEUES, {"metadata": {"name": "lab"}, "spec": {"namespaces": ["*"]}}).ok()
        machine.create("waits", "true", labels=labels, schedulingGates=[{"name": NAMES.gate}])
        assert user_of(machine, "waits") == "bob"
        machine.api.post("/api/v1/namespaces", {"metadata": {"name": NAMES.namespace}}).ok()
        machine.api.post(LEASES, {"metadata": {"name": PACE_LEASE, "annotations": said}, "spec": {}}).ok()
        assert user_of(machine, "waits") == "ann"
