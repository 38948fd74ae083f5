"""`aliquot simulate --record` of a real cluster, and the replay of what it wrote."""

from __future__ import annotations

import csv
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from aliquot_core.inventory import decode_inventory
from cluster.harness.cluster import ClusterHarness
from cluster.harness.pods import shell
from cluster.node_half import COMMAND, NAMES, NodeHalf, asks, sharing_pod, shows


def simulate(folder: Path, *arguments: str) -> str:
    """What the command prints, on three files of that folder."""
    files = [f"--{what}={folder / what}.csv" for what in ("nodes", "pods", "order")]
    done = subprocess.run(
        [COMMAND, "simulate", *files, *arguments], capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows(place: Path) -> list[dict[str, Any]]:
    """A list, by column."""
    with place.open(newline="") as lines:
        return list(csv.DictReader(lines))


@pytest.mark.timeout(180)
def test_a_real_cluster_is_written_down_and_replayed(
    cluster: ClusterHarness, half: NodeHalf, namespace: str, tmp_path: Path
) -> None:
    """With its GPUs, and pods that run, have ended or wait, in the order in which they came."""
    done = half.run(sharing_pod(namespace, shows(limits=asks(30, 8_000))), {"main": [(1, 30, 8_000)]})
    cluster.wait_for_phase(done, "Succeeded")
    waits = cluster.create_pod(sharing_pod(namespace, shell("true", limits=asks(45, 9_000))))
    told = simulate(tmp_path, "--record", "--kubeconfig", str(cluster.kubeconfig("admin")))
    assert f"{tmp_path / 'pods.csv'}" in told
    (node,) = [row for row in rows(tmp_path / "nodes.csv") if row["sn"] == half.name]
    inventory = decode_inventory(
        cluster.api.get(f"/api/v1/nodes/{half.name}")["metadata"]["annotations"][NAMES.inventory]
    )
    assert (int(node["gpu"]), node["model"]) == (8, inventory.gpus[0].model)
    assert int(node["gpu_memory_mib"]) == inventory.gpus[0].memory
    assert f"kubernetes.io/hostname={half.name}" in node["labels"]
    assert int(node["cpu_milli"]) > 0
    found = {row["name"].partition("/")[2]: row for row in rows(tmp_path / "pods.csv") if namespace in row["name"]}
    ended, waiting = (found[pod["metadata"]["name"]] for pod in (done, waits))
    asked = [[row[column] for column in ("num_gpu", "gpu_milli", "gpu_memory_mib")] for row in (ended, waiting)]
    assert asked == [["1", "300", "8000"], ["1", "450", "9000"]]
    assert (ended["pod_phase"], waiting["pod_phase"]) == ("Succeeded", "Pending")
    assert int(ended["creation_time"]) <= int(ended["scheduled_time"] or 10**9)
    assert (int(ended["deletion_time"]) >= int(ended["creation_time"]), waiting["deletion_time"]) == (True, "")
    replayed = json.loads(simulate(tmp_path, "-o", "json"))
    assert replayed["placed"] + replayed["failed"] == len(rows(tmp_path / "pods.csv")) >= 2
