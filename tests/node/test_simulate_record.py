"""`aliquot simulate --record` of a cluster that answers, and the replay of what it wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from aliquot_cli.main import main
from aliquot_standalone.apiserver.embedded import kubeconfig
from support.embedded_thread import embedded_server
from support.http_api import HttpApi
from support.large_cluster import NAMES, NAMESPACE, capacity, inventory_note, pod_manifest


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[list[str]]:
    """A node of eight GPUs and three pods; gives the arguments by which it is found."""
    with embedded_server() as url:
        api = HttpApi(url=url)
        for namespace in (NAMES.namespace, NAMESPACE):
            api.post("/api/v1/namespaces", {"metadata": {"name": namespace}}).ok()
        amounts = {"cpu": "64", "memory": "512Gi", "pods": "250", **capacity(8)}
        metadata = {"name": "n1", "annotations": inventory_note("n1", cards=8)}
        api.post("/api/v1/nodes", {"metadata": metadata, "status": {"capacity": amounts, "allocatable": amounts}}).ok()
        for name in ("b", "a", "c"):
            pod = pod_manifest(name, compute=30, memory=9_000)
            api.post(f"/api/v1/namespaces/{NAMESPACE}/pods", pod).ok()
        file = tmp_path / "kubeconfig"
        file.write_bytes(msgspec.json.encode(kubeconfig(url, token="")))
        yield ["--record", "--kubeconfig", str(file)]


def simulate(folder: Path, *arguments: str) -> Result:
    """The command, on three files of that folder."""
    files = [f"--{what}={folder / what}.csv" for what in ("nodes", "pods", "order")]
    return CliRunner().invoke(main, ["simulate", *files, *arguments])


def test_a_recorded_cluster_is_replayed(cluster: list[str], tmp_path: Path) -> None:
    """By the same command without --record; what is there already is never written over."""
    told = simulate(tmp_path, *cluster)
    assert (told.exit_code, told.stdout.split(":")[0]) == (0, "1 node, 3 pods")
    replayed = json.loads(simulate(tmp_path, "-o", "json").stdout)
    assert (replayed["pods"], replayed["placed"]) == (3, 3)
    before = (tmp_path / "pods.csv").read_text()
    again = simulate(tmp_path, *cluster)
    assert (again.exit_code, "it is there already" in again.stderr) == (3, True)
    assert (tmp_path / "pods.csv").read_text() == before


def test_a_place_that_can_t_be_written_is_named(cluster: list[str], tmp_path: Path) -> None:
    """As the user's mistake that it is."""
    told = simulate(tmp_path / "nowhere", *cluster)
    assert told.exit_code == 3
    assert "nodes.csv: can't be written" in told.stderr
