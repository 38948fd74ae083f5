"""What is only odd about a queue is let in, and its author reads what it does not do, and what is left when it goes."""

from __future__ import annotations

from typing import Any

import pytest

from aliquot_scheduler.queues.said.oddities import oddities_of
from aliquot_scheduler.queues.said.spec import QueueSpec, Quota
from support.admitting import Json
from support.queue_admission import ORG, of_queue

CLOSED = (
    "queue c, spec.compute: none of it may be used, but pods that ask for memory alone come in all the same: "
    "write memory: {limit: 0} too, if they are not to"
)
WEIGHTLESS = (
    "queue c, spec.{}: none of it may be used: of weight 0 it borrows nothing, and it is guaranteed nothing; "
    "give it a weight or a guarantee, or write limit: 0 to close it"
)
UNTOLD = "its status is not written yet, so it is not known whether pods wait or run in it"
TAKEN: dict[str, tuple[str, Any, list[str]]] = {
    "a new one": ("c", {"parent": "org", "compute": {"guarantee": 100}}, []),
    "another parent": ("b", {"compute": {"guarantee": 300}}, []),
    "the root, by an empty name": ("b", {"parent": "", "compute": {"guarantee": 300}}, []),
    "a leaf goes": ("b", None, [UNTOLD]),
    "what is not there goes": ("gone", None, [UNTOLD]),
    "all numbers just as far as they go": (
        "c",
        {"parent": "org", "compute": {"guarantee": 100, "limit": 100, "lendingLimit": 100, "borrowingLimit": 0}},
        [],
    ),
    "the limit of its parent": ("c", {"parent": "org", "compute": {"limit": 800}}, []),
    "lending of nothing": (
        "c",
        {"compute": {"lendingLimit": 5}},
        ["queue c, spec.compute: lendingLimit does nothing: there is no guarantee to lend of"],
    ),
    "borrowing without weight": (
        "c",
        {"memory": {"weight": 0, "borrowingLimit": 5}},
        [
            "queue c, spec.memory: borrowingLimit 5 does nothing: a queue of weight 0 borrows nothing",
            WEIGHTLESS.format("memory"),
        ],
    ),
    "closed for compute by its limit": ("c", {"compute": {"limit": 0}}, [CLOSED]),
    "closed for compute by what it may borrow": ("c", {"compute": {"borrowingLimit": 0}}, [CLOSED]),
    "closed for compute by its weight": ("c", {"compute": {"weight": 0}}, [WEIGHTLESS.format("compute")]),
    "closed for both by weights": (
        "c",
        {"compute": {"weight": 0}, "memory": {"weight": 0}},
        [WEIGHTLESS.format("compute"), WEIGHTLESS.format("memory")],
    ),
    "GiB for MiB": (
        "c",
        {"memory": {"limit": 80}, "models": {"A100*": {"memory": {"guarantee": 10}}}},
        [
            "queue c, spec.memory: limit 80 is 80 MiB; write 81920 if so many GiB were meant",
            "queue c, spec.models[A100*].memory: guarantee 10 is 10 MiB; write 10240 if so many GiB were meant",
        ],
    ),
    "a GiB": ("c", {"memory": {"limit": 1024}}, []),
    "GPUs for percent": (
        "c",
        {"compute": {"guarantee": 8}},
        ["queue c, spec.compute: guarantee 8 is 8 % of one GPU; write 800 if so many whole ones were meant"],
    ),
    "a tenth of a GPU": ("c", {"compute": {"guarantee": 10}}, []),
    "closed for both": ("c", {"compute": {"limit": 0}, "memory": {"limit": 0}}, []),
    "closed for both by two words": ("c", {"compute": {"limit": 0}, "memory": {"weight": 0}}, []),
    "its guarantee is all it has": ("c", {"compute": {"guarantee": 50, "weight": 0}}, []),
    "closed for a model's compute": (
        "c",
        {"models": {"A100*": {"compute": {"limit": 0}}}},
        [
            (
                "queue c, spec.models[A100*].compute: none of it may be used, but pods that ask for memory alone come "
                "in all the same: write models: {'A100*': {memory: {limit: 0}}} too, if they are not to"
            )
        ],
    ),
    "closed for a model": ("c", {"models": {"A100*": {"compute": {"limit": 0}, "memory": {"limit": 0}}}}, []),
    "closed for all compute, a model's too": (
        "c",
        {"compute": {"limit": 0}, "models": {"A100*": {"compute": {"limit": 0}}}},
        [CLOSED],
    ),
    "borrowing beyond the limit": (
        "c",
        {"compute": {"guarantee": 50, "limit": 60, "borrowingLimit": 20}},
        ["queue c, spec.compute: borrowingLimit would allow 70 in all, but limit 60 comes before that"],
    ),
    "a limit above the parent's": (
        "c",
        {"parent": "org", "compute": {"limit": 900}},
        ["queue c, spec.compute: limit 900 is never reached: queue org above it has limit 800"],
    ),
    "namespaces of an inner queue": (
        "org",
        {"namespaces": ["x"]},
        ["queue org, spec.namespaces does nothing: pods wait in the queues below it"],
    ),
    "minutes without autoscale": (
        "c",
        {"autoscaleMinutes": 5},
        ["queue c, spec.autoscaleMinutes does nothing without autoscale"],
    ),
    "a first child": (
        "c",
        {"parent": "b"},
        [
            (
                "queue b has queues below it from now on, where its pods must wait; "
                "namespaces whose label still names it: team"
            )
        ],
    ),
}


def test_a_queue_whose_parent_is_closed_for_memory_is_closed_with_it() -> None:
    """Nobody comes in there who asks for memory alone."""
    shut, half = Quota(limit=0), QueueSpec(parent="org", compute=Quota(limit=0))
    assert list(oddities_of("c", {"org": QueueSpec(memory=shut), "c": half})) == []
    assert len(list(oddities_of("c", {"org": QueueSpec(), "c": half}))) == 1


@pytest.mark.parametrize("row", TAKEN)
async def test_what_is_only_odd_is_warned_of(row: str) -> None:
    """It comes in, and its author reads what it does not do."""
    name, spec, warnings = TAKEN[row]
    answer = await of_queue(ORG, name, spec, {"team": "b"} if row == "a first child" else {})
    assert (answer["allowed"], answer.get("warnings", [])) == (True, warnings)


WRITTEN = "2026-11-22T09:10:11Z"
HOMES = "new pods are refused in the namespaces whose label names it: x, y"
LEFT: dict[str, tuple[Json, list[str]]] = {
    "three wait, others run": (
        {"used": {"compute": 250, "memory": 40_000}, "waiting": 3, "at": WRITTEN},
        [
            (
                "the 3 pods that wait in it are let in nowhere until they, or their namespaces, name another "
                f"(as of {WRITTEN})"
            ),
            f"its pods go on with 250 % and 40000 MiB, counted for no queue (as of {WRITTEN})",
            HOMES,
        ],
    ),
    "one waits": (
        {"waiting": 1, "at": WRITTEN},
        [
            f"the 1 pod that waits in it is let in nowhere until it, or its namespace, names another (as of {WRITTEN})",
            HOMES,
        ],
    ),
    "nobody was in it": ({"at": WRITTEN}, [HOMES]),
    "nobody has looked yet": ({}, [UNTOLD, HOMES]),
}


@pytest.mark.parametrize("row", LEFT)
async def test_who_deletes_a_queue_in_use_reads_what_is_left(row: str) -> None:
    """Pods that run lose nothing, who waits has nowhere to go; and as of when it is told, since a status is behind."""
    status, warnings = LEFT[row]
    answer = await of_queue(ORG, "b", None, {"x": "b", "y": "b", "z": "a"}, status=status)
    assert answer == {"allowed": True, "warnings": warnings}


@pytest.mark.parametrize("pattern", ["Team*", "!ann", " ", "team_a"])
def test_a_pattern_that_takes_no_namespace_is_warned_of(pattern: str) -> None:
    """No namespace has such a name, so nobody would ever be let in by it."""
    (said,) = oddities_of("a", {"a": QueueSpec(namespaces=(pattern, "team-*", "team-[ab]?", "*"))})
    assert said.startswith(f"queue a, spec.namespaces: {pattern!r} takes no namespace")
