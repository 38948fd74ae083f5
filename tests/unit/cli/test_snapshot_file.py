"""What is in a snapshot's file and what is not: nothing secret, all that decides; and what is no snapshot."""

from __future__ import annotations

import gzip
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from aliquot_cli.main import main
from aliquot_cli.options import Call
from aliquot_core.hosts import host_request
from aliquot_core.objects import Container, EnvVar, Pod, PodCondition, Queue
from aliquot_scheduler.in_force import InForce
from aliquot_scheduler.rules.expressions import Expression, RuleSettings
from aliquot_scheduler.simulating.deciding import Replayed
from aliquot_scheduler.simulating.snapshot import Snapshot, SnapshotError, packed, unpacked
from support.centre import WALL, asks, gpus, make_lease, make_node
from support.large_cluster import NAMES
from support.snapshots import CALL, GATES, read_queue


def test_nothing_secret_is_in_a_file() -> None:
    """Of containers their names and what they ask; of annotations our own."""
    notes = {NAMES.of("placement"): "pack", "vault/token": "hush-annotation", NAMES.of("token"): "hush-of-our-domain"}
    pod = asks("u1", 50, 1_000, annotations=notes)
    told = Container(
        name="main",
        image="hush-image",
        command=["hush-command"],
        args=["hush-args"],
        working_dir="/hush-folder",
        env=[EnvVar(name="TOKEN", value="hush-env")],
        resources=pod.spec.containers[0].resources,
    )
    spec = msgspec.structs.replace(pod.spec, containers=[told], init_containers=[told], active_deadline_seconds=900)
    condition = PodCondition(type="Ready", status="False", message="hush-message")
    status = msgspec.structs.replace(pod.status, message="hush-status", conditions=[condition])
    whole = Snapshot(
        wall=WALL,
        names=NAMES,
        settings=InForce(),
        pods=[msgspec.structs.replace(pod, spec=spec, status=status)],
        queues=[read_queue({"metadata": {"name": "q", "annotations": {"last-applied": "hush-applied"}}})],
    )
    text = gzip.decompress(packed(whole)).decode()
    assert "hush" not in text
    (kept,) = unpacked(packed(whole), where="memory").pods
    assert kept.metadata.annotations == {NAMES.of("placement"): "pack"}
    assert kept.spec.containers[0].resources == pod.spec.containers[0].resources
    assert kept.spec.active_deadline_seconds == 900
    assert packed(whole) == packed(unpacked(packed(whole), where="memory"))


def _ruled(refuse: str) -> Snapshot:
    """A pod that says by an annotation where it wants to lie, and a rule that may read that."""
    pod = asks(
        "u1", 50, 1_000, annotations={"acme.io/on": "n1", "acme.io/token": "hush"}, spec={"schedulingGates": GATES}
    )
    written = Expression(name="on", refuse=refuse)
    return Snapshot(
        wall=WALL,
        names=NAMES,
        settings=InForce(rules=RuleSettings(expressions=(written,))),
        nodes=[make_node(name, gpus(name, 1)) for name in ("n0", "n1")],
        leases=[make_lease(name) for name in ("n0", "n1")],
        pods=[pod],
    )


def test_what_a_rule_reads_by_name_is_in_a_file() -> None:
    """And no other annotation: the replay places the pod as the leader would."""
    whole = _ruled('pod.annotations[?"acme.io/on"].orValue(node.name) != node.name')
    data = packed(whole)
    assert b"hush" not in gzip.decompress(data)
    read = unpacked(data, where="memory")
    assert (Replayed(read).decide(), read.left_out) == (Replayed(whole).decide(), [])


def test_a_file_without_what_a_rule_may_read_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all annotations would have to be in it, none is; whoever takes it is told, and whoever replays it."""
    whole = _ruled('pod.annotations.exists(key, key == "acme.io/on") && node.name == "n0"')

    async def taken(call: Call) -> Snapshot:
        del call
        return whole

    monkeypatch.setattr("aliquot_cli.snapshot._taken", taken)
    monkeypatch.setattr("aliquot_cli.snapshot.make_call", lambda **_: CALL)
    file = str(tmp_path / "cluster.gz")
    for asked in (["snapshot", file], ["snapshot", "--replay", file]):
        done = CliRunner().invoke(main, asked)
        assert "the file is without annotations of pods" in done.stderr
    text = gzip.decompress(Path(file).read_bytes())
    assert b"hush" not in text
    assert packed(unpacked(Path(file).read_bytes(), where="memory")) == Path(file).read_bytes()


def test_a_pod_takes_as_much_of_its_node_in_a_file() -> None:
    """What it asks for all its containers, and what it has of that while it is resized."""
    of_all = {"requests": {"memory": "4Gi"}}
    containers = [{"name": "main", "resources": {"requests": {"cpu": "9"}}}]
    fares = {"resources": {"requests": {"cpu": "2"}}, "allocatedResources": {"cpu": "3"}}
    pod = msgspec.convert(
        {
            "metadata": {"name": "p", "namespace": "team", "uid": "u"},
            "spec": {
                "nodeName": "n",
                "containers": containers,
                "initContainers": [{**containers[0], "name": "side", "restartPolicy": "Always"}],
                "resources": of_all,
            },
            "status": {
                "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}],
                "containerStatuses": [{"name": "main", **fares}],
                "initContainerStatuses": [{"name": "side", **fares}],
                "resources": {"requests": {"memory": "6Gi"}},
                "allocatedResources": {"memory": "5Gi"},
            },
        },
        Pod,
    )
    whole = Snapshot(wall=WALL, names=NAMES, settings=InForce(), pods=[pod])
    (kept,) = unpacked(packed(whole), where="memory").pods
    assert host_request(pod) == (6000, 6 * 2**30)
    assert host_request(kept) == host_request(pod)


OF_LATER = RuleSettings(expressions=(Expression(name="later", refuse="pod.compute >> 1"),))
# Named, for a packed file tells when it was packed: processes that share tests out would each know them by other names.
NONE = {
    "nothing": (b"", "cut off"),
    "no gzip": (b"no gzip", "it is no snapshot"),
    "an empty object": (gzip.compress(b"{}"), "it is no snapshot"),
    "no end of brackets": (gzip.compress(b"[" * 100_000), "it is no snapshot"),
    "cut off": (packed(Snapshot(wall=WALL, names=NAMES, settings=InForce()))[:-20], "cut off"),
    "of a later version": (
        packed(Snapshot(version=99, wall=WALL, names=NAMES, settings=InForce())),
        "it is of version 99",
    ),
    "rules that a later version may understand": (
        gzip.compress(msgspec.json.encode(Snapshot(wall=WALL, names=NAMES, settings=InForce(rules=OF_LATER)))),
        "its rules are not understood",
    ),
    "a queue that has no name": (
        packed(Snapshot(wall=WALL, names=NAMES, settings=InForce(), queues=[Queue()])),
        "a queue without a name",
    ),
}


@pytest.mark.parametrize(("data", "told"), NONE.values(), ids=NONE)
def test_what_is_no_snapshot_is_refused(data: bytes, told: str, tmp_path: Path) -> None:
    """With exit code 3 and what is wrong."""
    with pytest.raises(SnapshotError, match=told):
        unpacked(data, where="memory")
    (tmp_path / "cluster.gz").write_bytes(data)
    done = CliRunner().invoke(main, ["snapshot", "--replay", str(tmp_path / "cluster.gz")])
    assert (done.exit_code, told in done.stderr) == (3, True)
