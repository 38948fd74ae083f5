"""Who is told, and when, that a pod will not get its slices."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aliquot_agent.starting.ungranted import PATIENCE, REASON, Patience, condition, trouble
from aliquot_core.names import Names
from aliquot_core.objects import Pod

NAMES = Names()


def make_pod(uid: str = "u1", *, asks: bool = True, grant: str | None = None, phase: str = "Pending") -> Pod:
    """A pod bound to n1."""
    limits: dict[str, Any] = {NAMES.compute: "30", NAMES.memory: "8k"} if asks else {"cpu": "1"}
    annotations = {} if grant is None else {NAMES.grant: grant}
    return msgspec.convert(
        {
            "metadata": {"name": uid, "namespace": "team", "uid": uid, "annotations": annotations},
            "spec": {"nodeName": "n1", "containers": [{"name": "main", "resources": {"limits": limits}}]},
            "status": {"phase": phase},
        },
        Pod,
    )


GOOD = '{"v":1,"node":"n1","pod":"u1","containers":{"main":{"slices":[{"gpu":"GPU-1","compute":30,"memory":8000}]}}}'


@pytest.mark.parametrize(
    ("pod", "words"),
    [
        (make_pod(), "without a grant"),
        (make_pod(grant="{"), "not readable"),
        (make_pod("u2", grant=GOOD), "belongs to another pod"),
        (make_pod(grant=GOOD), ""),
        (make_pod(asks=False), ""),
        (make_pod(phase="Failed"), ""),
    ],
)
def test_only_pods_that_ask_and_can_not_get_are_in_trouble(pod: Pod, words: str) -> None:
    """What is wrong is said in the words in which it is refused."""
    found = trouble(pod, names=NAMES)
    assert (words in found) if words else not found


def test_a_pod_is_complained_of_once_and_only_after_two_minutes() -> None:
    """A start that is refused says why each time; the condition is for what lasts."""
    patience = Patience(names=NAMES)
    assert patience.look([make_pod()], now=0.0) == []
    assert patience.look([make_pod()], now=PATIENCE - 1) == []
    (complaint,) = patience.look([make_pod()], now=PATIENCE)
    patience.told(complaint)
    assert patience.look([make_pod()], now=PATIENCE + 60) == []


def test_a_complaint_that_could_not_be_written_is_made_again() -> None:
    """The API server may have been away."""
    patience = Patience(names=NAMES)
    patience.look([make_pod()], now=0.0)
    assert len(patience.look([make_pod()], now=PATIENCE)) == 1
    assert len(patience.look([make_pod()], now=PATIENCE + 10)) == 1


def test_a_pod_that_was_mended_starts_its_time_anew() -> None:
    """Trouble that comes back is new trouble."""
    patience = Patience(names=NAMES)
    patience.look([make_pod()], now=0.0)
    assert patience.look([make_pod(grant=GOOD)], now=60.0) == []
    assert patience.look([make_pod()], now=PATIENCE) == []
    assert len(patience.look([make_pod()], now=PATIENCE * 2)) == 1


def test_the_condition_is_for_this_pod_only() -> None:
    """A pod made anew under the name has another uid, and the write is refused."""
    patience = Patience(names=NAMES)
    patience.look([make_pod()], now=0.0)
    (complaint,) = patience.look([make_pod()], now=PATIENCE)
    now = "2026-01-01T00:00:00Z"
    change = condition(complaint.pod, names=NAMES, now=now, reason=REASON, message=complaint.what)
    assert change["metadata"] == {"uid": "u1"}
    (told,) = change["status"]["conditions"]
    assert (told["type"], told["status"], told["reason"]) == ("aliquot.dev/granted", "False", "NoValidGrant")
    assert "without a grant" in told["message"]
