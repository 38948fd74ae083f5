"""An instance of MIG gets its card's device node and its own two, from the node's NVIDIA CDI spec or found."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from aliquot_core.grant import ContainerGrant, Slice
from aliquot_deviceplugin.cdi.driver_files import DriverGpu
from aliquot_deviceplugin.cdi.errors import DriverFilesError
from aliquot_deviceplugin.cdi.finding import DriverSettings, DriverSource, find_driver_files
from aliquot_deviceplugin.cdi.mig_nodes import MINORS
from aliquot_deviceplugin.cdi.slice_spec import slice_environment
from support.cdi import GPUS
from support.golden import GOLDEN
from support.mig import instances
from support.nodes import FakeNode, with_driver

# Of the second card, GPU instances 1 and 2; numbers of other cards and of compute instances beside theirs.
LISTED = """config 1
monitor 2
gpu0/gi1/access 12
gpu0/gi1/ci0/access 13
gpu1/gi1/access 21
gpu1/gi1/ci0/access 22
gpu1/gi1/ci1/access 23
gpu1/gi2/access 30
gpu1/gi2/ci0/access 31
gpu2/gi1/access 40
gpu2/gi1/ci0/access 41
"""
FIRST = DriverGpu(uuid="MIG-1", index=1, minor=1, instance=(1, 0))
SECOND = DriverGpu(uuid="MIG-2", index=1, minor=1, instance=(2, 0))
SPEC = "/etc/cdi/nvidia.yaml"
CAPS = "/dev/nvidia-caps/nvidia-cap"


def node(*, spec: dict[str, Any] | None = None, listed: str | None = LISTED) -> FakeNode:
    """A node with a card that is cut into two instances."""
    made = with_driver()
    made.device("/dev/dri/card1", "/dev/dri/renderD128", *(f"{CAPS}{number}" for number in (21, 22, 30, 31)))
    made.file("/usr/bin/nvidia-cdi-hook")
    if listed is not None:
        made.file(MINORS, listed.encode())
    if spec is not None:
        made.file(SPEC, json.dumps(spec).encode())
    return made


def nvidia_spec() -> dict[str, Any]:
    """The hand-written one, which has the first instance as `1:0`."""
    raw: dict[str, Any] = yaml.safe_load((GOLDEN / "nvidia.yaml").read_bytes())
    return raw


def nodes_of(made: FakeNode, gpu: DriverGpu) -> set[str]:
    """The GPU's device nodes in a container, those that every container has left out."""
    files = find_driver_files(made, settings=DriverSettings(source=DriverSource.AUTO))
    found = {one.path for one in files.edits_for(gpu).device_nodes}
    return {path for path in found if path.startswith(CAPS) or path.removeprefix("/dev/nvidia").isdecimal()}


def why_not(made: FakeNode, gpu: DriverGpu) -> str:
    """What is wrong with the files."""
    with pytest.raises(DriverFilesError) as caught:
        nodes_of(made, gpu)
    return str(caught.value)


@pytest.mark.parametrize("with_spec", [False, True], ids=["found", "NVIDIA's spec"])
def test_an_instance_gets_its_own_nodes_and_no_other_s(with_spec: bool) -> None:
    """With the card's node, which opens nothing by itself; a whole GPU gets none of them."""
    made = node(spec=nvidia_spec() if with_spec else None)
    assert nodes_of(made, FIRST) == {"/dev/nvidia1", f"{CAPS}21", f"{CAPS}22"}
    assert nodes_of(made, DriverGpu(uuid=GPUS[0], index=0, minor=0)) == {"/dev/nvidia0"}


def test_another_instance_is_found_by_its_own_nodes() -> None:
    """Whatever place or name it has in the spec."""
    raw = nvidia_spec()
    own = {"deviceNodes": [{"path": path} for path in ("/dev/nvidia1", f"{CAPS}30", f"{CAPS}31")]}
    raw["devices"].insert(0, {"name": "1:5", "containerEdits": own})
    assert nodes_of(node(spec=raw), SECOND) == {"/dev/nvidia1", f"{CAPS}30", f"{CAPS}31"}
    assert nodes_of(node(spec=raw), FIRST) == {"/dev/nvidia1", f"{CAPS}21", f"{CAPS}22"}
    raw["devices"][0]["name"] = "MIG-2"
    assert nodes_of(node(spec=raw), SECOND) == {"/dev/nvidia1", f"{CAPS}30", f"{CAPS}31"}


def test_a_spec_that_calls_another_instance_by_its_uuid_is_refused() -> None:
    """It is older than the instances: what it names opens somebody else's."""
    raw = nvidia_spec()
    named = next(one for one in raw["devices"] if one["name"] == "1:0")
    named["name"] = "MIG-2"
    told = why_not(node(spec=raw), SECOND)
    assert f"device MIG-2 opens {CAPS}21, {CAPS}22, and GPU MIG-2 is {CAPS}30, {CAPS}31" in told


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (node(spec=nvidia_spec()), "does not have GPU MIG-2"),
        (node(listed=None), "No such file or directory"),
        (node(listed=LISTED.replace("gi2", "gi5")), "does not name GPU instance 2 and compute instance 0 of it"),
        (
            node(listed=LISTED.replace("gi2/ci0/access 31", "gi2/ci0/access 99")),
            f"{CAPS}99 is no device; `nvidia-modprobe -f`",
        ),
    ],
    ids=["not in the spec", "no list", "not in the list", "no node"],
)
def test_without_its_nodes_no_container_starts(made: FakeNode, why: str) -> None:
    """With the file that lacks them, and what to do."""
    told = why_not(made, SECOND)
    assert why in told
    assert "; " in told


def test_the_inventory_s_instance_is_known_by_its_card_and_its_numbers() -> None:
    """Minor and index are the card's."""
    (card,) = instances("n1", "1g.10gb", card=1)
    assert DriverGpu.of(card, minor=card.minor) == DriverGpu(uuid=card.uuid, index=1, minor=1, instance=(7, 0))


def test_cuda_sees_the_instance_alone() -> None:
    """By its uuid, and the NVIDIA runtime adds nothing."""
    (card,) = instances("n1", "1g.10gb")
    part = Slice(gpu=card.uuid, compute=card.compute, limit=card.compute, memory=card.usable)
    environment = slice_environment(ContainerGrant(slices=(part,), isolation="mig"))
    assert {
        f"CUDA_VISIBLE_DEVICES={card.uuid}",
        "NVIDIA_VISIBLE_DEVICES=void",
        "ALIQUOT_COMPUTE=14",
        "ALIQUOT_MEMORY=9728",
        "ALIQUOT_ISOLATION=mig",
    } <= set(environment)
