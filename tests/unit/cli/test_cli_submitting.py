"""From a command line to a pod."""

from __future__ import annotations

import re
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from aliquot_cli.submitting import Wish, WishError, literally, manifest, name_for, passed_on
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.request import parse_request
from aliquot_standalone.kubelet.launch import expand

NAMES = Names(domain="gpu.example")


def made(**more: Any) -> dict[str, Any]:
    """A manifest."""
    return manifest(Wish(**{"command": ["true"], "name": "x", "namespace": "n", **more}), names=NAMES)


def test_the_contract_reads_what_was_asked() -> None:
    """Compute, memory, GPUs, models and queue arrive where the centre looks for them, under the names that are set."""
    asked = made(compute=200, memory=8000, gpus=4, model="A100*,!*40GB", queue="team")
    request = parse_request(msgspec.convert(asked, Pod), names=NAMES)
    (one,) = request.containers
    assert (one.compute.value, one.memory and one.memory.value, one.gpus) == (200, 8000, 4)
    assert request.queue == "team"
    assert request.models.admits("A100-SXM4-80GB")
    assert not request.models.admits("A100-SXM4-40GB")


def test_what_is_not_asked_is_not_there() -> None:
    """The centre fills in what was left out, so nothing is said of it here."""
    plain = made(compute=10)
    assert plain["metadata"]["annotations"] == {}
    assert plain["metadata"]["labels"] == {}
    assert plain["spec"]["containers"][0]["resources"] == {"limits": {NAMES.compute: "10"}}
    assert "priorityClassName" not in plain["spec"]


@given(st.text(alphabet="$(AB)x ", max_size=12))
def test_texts_reach_the_program_as_they_are(text: str) -> None:
    """Whatever dollars and brackets are in them, though Kubernetes reads some of them."""
    assert expand(literally(text), {"A": "wrong", "B": "wrong"}) == text


def test_no_secret_goes_along_unasked() -> None:
    """Only what is on the list; what is said goes by name or by value."""
    here = {"PATH": "/bin", "LC_ALL": "C", "AWS_SECRET_ACCESS_KEY": "s", "HF_TOKEN": "t", "SSH_AUTH_SOCK": "u"}
    assert passed_on(here, said=(), by_default=True) == {"PATH": "/bin", "LC_ALL": "C", "PYTHONUNBUFFERED": "1"}
    assert passed_on(here, said=("HF_TOKEN", "A=b=c", "E="), by_default=False) == {"HF_TOKEN": "t", "A": "b=c", "E": ""}


@pytest.mark.parametrize("said", ["", "=x", "NOT_HERE"])
def test_a_variable_that_can_not_be_passed_is_refused(said: str) -> None:
    """Silence would be found out by the program, or never."""
    with pytest.raises(WishError):
        passed_on({}, said=(said,), by_default=True)


@pytest.mark.parametrize(
    ("command", "image", "name"),
    [
        (["/usr/bin/nvidia-smi"], "", "nvidia-smi-t"),
        (["python3", "-u", "src/Train_Model.py", "--lr"], "", "train-model-t"),
        (["bash", "run.sh"], "", "run-t"),
        (["python", "-c", "print()"], "", "python-t"),
        ([], "pytorch/pytorch:2.9", "pytorch-t"),
        (["ünïcode"], "", "n-code-t"),
        (["..."], "", "run-t"),
    ],
)
def test_pods_are_named_after_what_they_run(command: list[str], image: str, name: str) -> None:
    """So that a list of them can be read."""
    assert name_for(command, image=image, tail="t") == name


@given(st.lists(st.text(max_size=80), max_size=3), st.text(max_size=80))
def test_a_name_is_always_one_that_kubernetes_takes(command: list[str], image: str) -> None:
    """Whatever the program is called."""
    name = name_for(command, image=image, tail="bcdfg")
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name)
    assert len(name) <= 63
