"""Who appears in the demonstration: two teams and their pods, as a user would write them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from aliquot_core.names import Names
from aliquot_standalone.simulated.loads import SimNames

VISION, SPEECH = "vision", "speech"
TEAMS = (VISION, SPEECH)
# The queue above those of all teams, and the one in which whoever looks on waits.
ALL_TEAMS, ONLOOKERS = "teams", "default"
# Whatever the demonstration makes bears it, so that the next one can clear it away.
MARK = "aliquot-demo"
_SAY_SLICE = 'echo "$ALIQUOT_COMPUTE % and $ALIQUOT_MEMORY MiB of $ALIQUOT_GPUS"'
Json = dict[str, Any]


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """One pod: whose it is, what it asks, and how long it is at work; None for as long as the demonstration."""

    team: str
    name: str
    compute: int
    memory: int
    seconds: float | None = None
    # On GPUs that others use already, where it may choose.
    packed: bool = False
    # Percent of its grant that it really uses, where that is simulated.
    use: int = 80
    # A group of so many, none of which begins alone.
    group: str = ""
    size: int = 0


def queue(name: str, *, parent: str = "", names: Names, **compute: int) -> Json:
    """A queue with what it is promised of compute; it may borrow whatever others leave idle, up to its limit."""
    return {
        "apiVersion": f"{names.domain}/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"compute": compute} | ({"parent": parent} if parent else {}),
    }


def namespace(team: str, *, names: Names) -> Json:
    """A team's namespace, at home in its queue."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team, "labels": {names.queue: team}}}


def real_pod(act: Act, *, names: Names) -> Json:
    """A pod that prints its slice and stays: it runs as a process, where commands are run."""
    return _pod(act, command=["sh", "-c", f"{_SAY_SLICE}; trap 'exit 0' TERM; sleep 100000 & wait"], names=names)


def played_pod(act: Act, *, names: Names) -> Json:
    """A pod that is played, and only where that is done: GPUs that run commands are left to whoever looks on."""
    sim = SimNames(names)
    notes = {sim.use: str(act.use)} | ({sim.duration: f"{act.seconds:g}"} if act.seconds is not None else {})
    seconds = 100_000 if act.seconds is None else act.seconds
    pod = _pod(act, command=["sleep", f"{seconds:g}"], notes=notes, names=names)
    pod["spec"]["nodeSelector"] = {names.simulated: "true"}
    return pod


def _pod(act: Act, *, command: list[str], notes: Mapping[str, str] | None = None, names: Names) -> Json:
    grouped = {names.group_size: str(act.size)} if act.group else {}
    packed = {names.placement: "pack"} if act.packed else {}
    labels = {MARK: act.team} | ({names.group: act.group} if act.group else {})
    limits = {names.compute: str(act.compute), names.memory: str(act.memory)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": act.name,
            "namespace": act.team,
            "labels": labels,
            "annotations": {**grouped, **packed, **(notes or {})},
        },
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "none", "command": command, "resources": {"limits": limits}}],
        },
    }
