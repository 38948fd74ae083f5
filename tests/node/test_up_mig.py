"""MIG on one machine: `aliquot up` itself, on a fake NVML whose only card is cut, and on simulated cards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from aliquot_agent.gpus.known_models import KNOWN_MODELS
from aliquot_core.grant import decode_grant
from support.endpoints import short_folder
from support.fake_nvml import FakeNvml
from support.http_api import Json
from support.up_process import NAMES, PODS, Up, aliquot, eventually, running_up

pytestmark = [pytest.mark.native, pytest.mark.timeout(300)]

SMALL, LARGE = (1, 9_856), (3, 40_320)
_EVENTS = "/api/v1/namespaces/default/events"
_PRINTS = "env | grep -E '^(CUDA_VISIBLE|ALIQUOT_(COMPUTE|MEMORY|ISOLATION)=)' | sort; echo told; exec sleep 1000"


@pytest.fixture
def nvml(fake_nvml_library: Path) -> Iterator[FakeNvml]:
    """A driver with one A100, in a folder with a short path."""
    with short_folder() as root:
        (root / "nvml").mkdir()
        nvml = FakeNvml(library=fake_nvml_library, folder=root / "nvml")
        nvml.install([KNOWN_MODELS["A100-80GB"]])
        yield nvml


@pytest.fixture
def up(nvml: FakeNvml) -> Iterator[Up]:
    """`aliquot up` on that card, cut into a large instance and two small ones."""
    nvml.cut(gpu=0, into=[LARGE, SMALL, SMALL])
    settings = nvml.folder / "aliquot.toml"
    # The fake NVML is a driver's library only: of a real driver containers need more.
    settings.write_text('[agent]\ndriver_files = "simulated"\n')
    environment = {**os.environ, **nvml.environment(), "ALIQUOT_CONFIG": str(settings)}
    with running_up(nvml.folder.parent / "home", gpus="nvml", environment=environment) as up:
        yield up
        assert up.stop() == 0


def held(pod: Json) -> tuple[str, int, int]:
    """What it was granted."""
    (part,) = decode_grant(pod["metadata"]["annotations"][NAMES.grant]).containers["main"].slices
    return part.gpu, part.compute.value, part.memory.value


def told_of(up: Up) -> list[str]:
    """What Events say."""
    return [one["message"] for one in up.api.get(_EVENTS).ok()["items"]]


def why_waiting(up: Up, name: str) -> str:
    """What a pod that waits is told."""
    conditions = up.pod(name)["status"].get("conditions", [])
    return " ".join(one.get("message", "") for one in conditions)


def test_pods_get_instances_each_to_itself(up: Up, nvml: FakeNvml) -> None:
    """The smallest that would do, with what the container is told of it; who comes too late waits for one."""
    large, *small = (one.uuid for one in nvml.instances)
    up.run("small", "sh", "-c", _PRINTS, compute="10")
    uuid, *size = held(up.until("small", "Running", "Failed"))
    assert (uuid in small, size) == (True, [14, 9_840])
    eventually(lambda: "told" in up.log("small"))
    assert up.log("small").splitlines() == [
        "ALIQUOT_COMPUTE=14",
        "ALIQUOT_ISOLATION=mig",
        "ALIQUOT_MEMORY=9840",
        f"CUDA_VISIBLE_DEVICES={uuid}",
        "told",
    ]
    eventually(lambda: f"main: 14 % and 9840 MiB of {uuid}; isolation mig: compute held, memory held" in told_of(up))
    up.run("large", "sleep", "1000", compute="30")
    assert held(up.until("large", "Running", "Failed")) == (large, 42, 40_304)
    up.run("late", "sleep", "1000", compute="30")
    free = "it counts as 42 % of compute and 40304 MiB of memory; of all GPUs 14 of 70 % and 9840 of 59984 MiB are free"
    eventually(lambda: free in why_waiting(up, "late"))
    up.api.delete(f"{PODS}/large").ok()
    assert held(up.until("late", "Running", "Failed"))[0] == large


def test_simulated_cards_are_cut_as_they_are_written() -> None:
    """On a node that runs commands and on one that plays them: pods get instances, and commands tell of them."""
    with short_folder() as root, running_up(root / "home", gpus="A100-80GB:3g.40gb+2x1g.10gb,A30:2x2g.12gb") as up:
        up.run("real", "sh", "-c", "echo $ALIQUOT_COMPUTE $ALIQUOT_ISOLATION; exec sleep 1000", compute="10")
        uuid, *size = held(up.until("real", "Running", "Failed"))
        assert size == [14, 10_160]
        eventually(lambda: up.log("real").splitlines() == ["14 mig"])
        limits = {NAMES.compute: "45", NAMES.memory: "8000"}
        container = {"name": "main", "image": "none", "resources": {"limits": limits}}
        notes = {"sim.aliquot.dev/use": "50"}
        body = {"metadata": {"name": "played", "annotations": notes}, "spec": {"containers": [container]}}
        up.api.post(PODS, body).ok()
        assert held(up.until("played", "Running", "Failed"))[1:] == (50, 12_032)
        told = aliquot("explain", "real", folder=root / "home").stdout
        assert (uuid in told, "NVIDIA A100-SXM4-80GB MIG 1g.10gb" in told) == (True, True)
        how = "mig, guaranteed: compute held, memory held; hard: by the GPU's own hardware, faults of others included"
        assert f"\nisolation\n  main: {how}\n" in told
        assert "a30-mig-1" in aliquot("ps", folder=root / "home").stdout
        assert up.stop() == 0
