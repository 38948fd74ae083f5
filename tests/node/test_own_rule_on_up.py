"""The rule of examples/own-rule in a running Aliquot: by the settings file alone, as its README says."""

from __future__ import annotations

from pathlib import Path

import pytest

from aliquot_core.names import PACE_LEASE
from support.up_process import NAMES, PODS, aliquot, running_up

RULES = Path(__file__).parents[2] / "examples" / "own-rule" / "rules.toml"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMES.namespace}/leases"
WORDS = "rule fast-disk-wanted: its disks are slow, and the pod wants fast ones"


@pytest.mark.timeout(240)
def test_a_pod_that_wants_fast_disks_waits_for_a_node_that_has_them(tmp_path: Path) -> None:
    """It is told why, by the rule's words, and is let in as soon as the node bears the label."""
    folder = tmp_path / "up"
    with running_up(folder, "--config", str(RULES), gpus="2xA100-80GB") as up:
        (node,) = up.api.get("/api/v1/nodes").ok()["items"]
        limits = {NAMES.compute: "30", NAMES.memory: "8000"}
        container = {"name": "main", "image": "none", "command": ["true"], "resources": {"limits": limits}}
        metadata = {"name": "picky", "annotations": {"example.org/disk": "ssd"}}
        body = {"metadata": metadata, "spec": {"containers": [container], "restartPolicy": "Never"}}
        up.api.post(PODS, body).ok()
        with up.api.watch(PODS, fieldSelector="metadata.name=picky") as watch:
            while True:
                pod = watch.next()["object"]
                said = [one.get("message", "") for one in pod.get("status", {}).get("conditions", ())]
                if any(WORDS in message for message in said):
                    break
        with up.api.watch(LEASES, fieldSelector=f"metadata.name={PACE_LEASE}") as watch:
            while NAMES.settings not in watch.next()["object"]["metadata"].get("annotations", {}):
                pass
        told = aliquot("explain", "picky", folder=folder)
        assert told.returncode == 0, told.stderr
        assert WORDS in told.stdout
        assert not up.pod("picky")["spec"].get("nodeName")
        up.api.patch(f"/api/v1/nodes/{node['metadata']['name']}", {"metadata": {"labels": {"disktype": "ssd"}}}).ok()
        assert up.until("picky", "Succeeded")["spec"]["nodeName"] == node["metadata"]["name"]
        assert up.stop() == 0
