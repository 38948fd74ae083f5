"""Every folder of examples/ that runs on `aliquot up`, applied there by kubectl: what its README says must happen."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import pytest
import yaml

from aliquot_core.grant import Slice, decode_grant
from aliquot_scheduler.deciding.promises import DOUBT
from cluster.harness import binaries
from support.endpoints import short_folder
from support.examples import EXAMPLES, USES, Stage
from support.http_api import Json
from support.require import skip_or_fail
from support.up_process import NAMES, Up, eventually, naming, running_up

# Needs several users, kinds that only a cluster has or what only kube-scheduler knows, or no cluster at all.
ELSEWHERE = {"many-namespaces", "placing", "own-rule", "budget-of-ones-own", "never-bound"}
# On a busy machine the answer to a binding may get lost: nobody else gets the room, nor the pod another place, while
# the write may still land.
LONG_S = DOUBT + 60.0
# In production a minute; pods of no other example wait for what is guaranteed to them and lies in pieces.
OWED = {"ALIQUOT_QUEUES_OWED": "2"}
HOGS: Mapping[str, Sequence[Stage]] = {
    "bulk-submission": [
        Stage(["queues", "ann"], {"lab-ann": 400}, waiting={"lab-ann": 36}),
        Stage(["bob"], {"lab-ann": 400}, waiting={"lab-bob": 1}),
    ],
    "everything-urgent": [
        Stage(["queues", "red"], {"team-red": 400}, waiting={"team-red": 4}),
        Stage(["blue"], {"team-red": 400}, waiting={"team-blue": 8}),
    ],
    "being-there-first": [
        Stage(["queues", "red"], {"first-red": 400}),
        # Two of red's were asked to go, and made again.
        Stage(["blue"], {"first-red": 200, "first-blue": 200}, waiting={"first-red": 6}),
    ],
    "slivers-everywhere": [
        Stage(["queues", "red"], {"slivers-red": 40}, {"slivers-red": 4}),
        Stage(["blue"], {"slivers-red": 40, "whole-blue": 300}, {"slivers-red": 1, "whole-blue": 3}),
    ],
    "hard-reservation": [
        Stage(["queues", "research"], {"research": 300}, waiting={"research": 5}),
        # One of research's was asked to go, and made again.
        Stage(["ward"], {"research": 200, "ward": 100}, waiting={"research": 6}),
        Stage(["clinic"], {"research": 200, "ward": 100, "clinic": 100}),
    ],
    "never-to-be-evicted": [
        Stage(["queues", "firm"], {"firm-red": 200}, waiting={"firm-red": 2}),
        Stage(["loose"], {"firm-red": 400}),
    ],
    "borrowing-without-end": [
        Stage(["queues", "night"], {"night": 200}, waiting={"night": 2}),
        Stage(["day"], {"night": 200, "day": 100}, waiting={"day": 3}),
    ],
    "hogging-memory": [
        Stage(["queues", "red"], {"memory-red": 4}, waiting={"memory-red": 4}),
        Stage(["blue"], {"memory-red": 4, "memory-blue": 180}),
    ],
    "small-before-large": [
        Stage(["queues", "swarm"], {"pool-swarm": 400}),
        Stage(["whale"], {"pool-swarm": 400}, waiting={"pool-whale": 1}),
    ],
    "large-before-small": [
        Stage(["queues", "small"], {"many-small": 400}),
        Stage(["large"], {"many-small": 400}, waiting={"few-large": 4}),
    ],
    "endless-line": [Stage(["queues", "loop"], {"endless": 400}, waiting={"endless": 6})],
    # Two are shown to an autoscaler that is not there.
    "growing-without-end": [
        Stage(["queues", "six"], {"growing": 400}, waiting={"growing": 0}),
        Stage(["four"], {"growing": 400}, waiting={"growing": 4}),
    ],
    "leaving-slowly": [
        Stage(["queues", "red"], {"slow-red": 400}),
        # Two of red's were asked to go, and made again.
        Stage(["blue"], {"slow-red": 200, "slow-blue": 200}, waiting={"slow-red": 2}),
    ],
    "half-started-groups": [
        Stage(["queues", "one", "two"], {"runs": 300}, waiting={"runs": 3}),
        Stage(["nightly", "launcher"], {"runs": 300}, waiting={"runs": 12}),
    ],
}
SHOWN = {**USES, **HOGS}


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    """Four GPUs for all of them, one after another."""
    if not binaries.find("kubectl"):
        skip_or_fail("cluster", "kubectl is not built (make cluster)")
    with short_folder() as root:
        with running_up(root / "home", gpus="4xA100-80GB", environment=os.environ | OWED) as running:
            yield running
            assert running.stop() == 0
        assert naming(root) == []


def kubectl(up: Up, *arguments: str, given: str = "") -> str:
    """As a user calls it."""
    command = [str(binaries.path_of("kubectl")), "--kubeconfig", str(up.home.kubeconfig), *arguments]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def named(folder: str, files: Sequence[str]) -> list[str]:
    """The files as kubectl is told of them."""
    return [word for file in files for word in ("-f", str(EXAMPLES / folder / f"{file}.yaml"))]


def pods(up: Up, namespace: str, *phases: str) -> list[Json]:
    """Those of a namespace that are so."""
    found: list[Json] = up.api.get(f"/api/v1/namespaces/{namespace}/pods").ok()["items"]
    return [pod for pod in found if pod.get("status", {}).get("phase", "Pending") in phases]


def slices(up: Up, namespace: str) -> list[Slice]:
    """What pods that run there have been granted."""
    grants = [decode_grant(pod["metadata"]["annotations"][NAMES.grant]) for pod in pods(up, namespace, "Running")]
    return [part for one in grants for all_of in one.containers.values() for part in all_of.slices]


def is_so(up: Up, stage: Stage) -> bool:
    """Whether everybody has what the stage says, and as many wait or are done."""
    parts = {space: slices(up, space) for space in (*stage.held, *stage.cards)}
    return (
        all(sum(part.compute.value for part in parts[space]) == percent for space, percent in stage.held.items())
        and all(len({part.gpu for part in parts[space]}) == count for space, count in stage.cards.items())
        and all(_waiting(up, space) == count for space, count in stage.waiting.items())
        and all(len(pods(up, space, "Succeeded")) == count for space, count in stage.done.items())
    )


def _waiting(up: Up, namespace: str) -> int:
    return sum(bool(pod["spec"].get("schedulingGates")) for pod in pods(up, namespace, "Pending"))


@pytest.fixture
def folder(request: pytest.FixtureRequest, up: Up) -> Iterator[str]:
    """An example; whatever it has brought is gone before the next one."""
    name: str = request.param
    yield name
    files = [EXAMPLES / name / f"{file}.yaml" for stage in SHOWN[name] for file in stage.files]
    objects = [one for file in files for one in yaml.safe_load_all(file.read_text()) if one]
    # The last first, as queues go before the one above them.
    given = yaml.safe_dump_all(objects[::-1])
    kubectl(up, "delete", "--wait=false", "--ignore-not-found", "-f", "-", given=given)
    eventually(lambda: not up.api.get("/api/v1/pods").ok()["items"], seconds=LONG_S)


@pytest.mark.timeout(6 * LONG_S)
@pytest.mark.parametrize("folder", sorted(SHOWN), indirect=True)
def test_an_example_shows_on_one_machine_what_it_shows_in_a_cluster(up: Up, folder: str) -> None:
    """Stage by stage: who has how much, and who waits."""
    for stage in SHOWN[folder]:
        kubectl(up, "apply", *named(folder, stage.files))
        eventually(partial(is_so, up, stage), seconds=LONG_S)


def test_every_example_is_shown_somewhere() -> None:
    """No folder is forgotten, and each says where it runs."""
    folders = {path.name for path in EXAMPLES.iterdir() if path.is_dir()}
    assert set(SHOWN) | ELSEWHERE == folders
    listed = (EXAMPLES / "README.md").read_text()
    for folder in USES:
        assert "Runs on `aliquot up` and on a cluster" in (EXAMPLES / folder / "README.md").read_text()
        assert f"({folder}/)" in listed
        used = {file for stage in SHOWN[folder] for file in stage.files}
        assert used == {path.stem for path in (EXAMPLES / folder).glob("*.yaml")}
