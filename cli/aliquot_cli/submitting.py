"""From a command line to a pod's manifest. Pure.

What of the caller's environment goes along is a list, not all of it: a pod's spec is read by everybody who may read
pods, and an environment is where people keep their keys. So it is what a program needs to be found and to run as it
does in the caller's shell; the rest is named with --env.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from aliquot_core.errors import UserError
from aliquot_core.names import Names

CONTAINER = "main"
# Nothing is pulled on `aliquot up`, but the API asks for a name.
NO_IMAGE = "host"
PASSED = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_*",
    "TZ",
    "VIRTUAL_ENV",
    "CONDA_DEFAULT_ENV",
    "CONDA_PREFIX",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "PYTHONUNBUFFERED",
)
_LONGEST_NAME = 40
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")
_SEPARATOR = "="


class WishError(UserError):
    """Something on the command line that can't be."""


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What is to run, with how much."""

    command: Sequence[str]
    name: str
    namespace: str
    compute: int | None = None
    memory: int | None = None
    gpus: int | None = None
    queue: str = ""
    model: str = ""
    priority_class: str = ""
    image: str = ""
    folder: str = ""
    environment: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}


def manifest(wish: Wish, *, names: Names) -> dict[str, Any]:
    """Write the pod as a user would."""
    asked = {names.compute: wish.compute, names.memory: wish.memory}
    notes = {names.gpus: wish.gpus, names.gpu_model: wish.model}
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": wish.image or NO_IMAGE,
        "resources": {"limits": {name: str(amount) for name, amount in asked.items() if amount is not None}},
        "env": [{"name": name, "value": literally(value)} for name, value in wish.environment.items()],
    }
    if wish.command:
        container["command"] = [literally(part) for part in wish.command]
    if wish.folder:
        container["workingDir"] = wish.folder
    spec: dict[str, Any] = {"restartPolicy": "Never", "containers": [container]}
    if wish.priority_class:
        spec["priorityClassName"] = wish.priority_class
    labels = {**wish.labels, **({names.queue: wish.queue} if wish.queue else {})}
    metadata = {
        "name": wish.name,
        "namespace": wish.namespace,
        "labels": labels,
        "annotations": {name: str(value) for name, value in notes.items() if value},
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def literally(text: str) -> str:
    """The text as it is: Kubernetes reads `$(NAME)` and `$$` in commands and values."""
    return text.replace("$", "$$")


def passed_on(environment: Mapping[str, str], *, said: Sequence[str], by_default: bool) -> dict[str, str]:
    """The variables that go along: those of the list if nothing else is the base, and what was `said`: K=V, or K."""
    found = {
        name: value
        for name, value in environment.items()
        if by_default and any(fnmatchcase(name, pattern) for pattern in PASSED)
    }
    if by_default:
        # Output goes to a file first, where Python would keep 8 KiB back.
        found.setdefault("PYTHONUNBUFFERED", "1")
    for one in said:
        name, given, value = one.partition(_SEPARATOR)
        if not name:
            raise WishError("it names no variable", where=f"--env {one}", remedy="write NAME=VALUE, or NAME")
        if not given and name not in environment:
            raise WishError(
                "it is not set here", where=f"--env {name}", remedy=f"write --env {name}=VALUE, or export it first"
            )
        found[name] = value if given else environment[name]
    return found


def name_for(command: Sequence[str], *, image: str, tail: str) -> str:
    """A pod's name after the program that it runs."""
    program = (command[0] if command else image.partition(":")[0]).rpartition("/")[2]
    script = next((one for one in command[1:] if not one.startswith("-")), "")
    # Twenty pods named `python` tell nobody anything.
    if program.startswith(("python", "bash", "sh")) and script.endswith((".py", ".sh")):
        program = script.rpartition("/")[2].removesuffix(".py").removesuffix(".sh")
    plain = _NOT_IN_NAMES.sub("-", program.lower())[:_LONGEST_NAME].strip("-")
    return f"{plain or 'run'}-{tail}"
