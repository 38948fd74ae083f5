"""What a workload asks against what it uses, as `aliquot explain` tells it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aliquot_cli.advice import advice
from aliquot_cli.pod_rows import Used
from aliquot_core.objects import OwnerReference, Pod
from support.centre import NAMES, asks, bound

ASKED = "look again when it works hardest, before asking less"
HOUR, NOW = 3600.0, 100_000.0


def pod(uid: str, *, maker: str = "", phase: str = "Running", **more: Any) -> Pod:
    """A pod with 30 % and 8,000 MiB, made by some controller or by hand."""
    made = bound(asks(uid, 30, 8_000, phase=phase, **more), node="n1", held={"GPU-n1-0": (30, 8_000)})
    return made_by(maker, made) if maker else made


def made_by(maker: str, one: Pod) -> Pod:
    """The pod as a controller makes it."""
    owners = [OwnerReference(kind="ReplicaSet", name=maker, uid=maker, controller=True)]
    return msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, owner_references=owners))


def told(*pods: Pod, **used: Used) -> list[str]:
    """What is said of the first, given what each uses by its uid."""
    by_key = {f"team/pod-{uid}": one for uid, one in used.items()}
    return advice(pods[0], pods=pods, used=by_key, names=NAMES, wall=NOW)


@pytest.mark.parametrize(
    ("used", "lines"),
    [
        (
            Used(compute=10, memory=2_000),
            ["it uses now: 2000 of 8000 MiB, 10 of 30 % compute",
             f"aliquot.dev/memory: 2500 would leave a quarter; {ASKED}",
             f"aliquot.dev/compute: 13 would leave a quarter; {ASKED}"],
        ),
        (Used(compute=25, memory=6_000), ["it uses now: 6000 of 8000 MiB, 25 of 30 % compute"]),
        (
            Used(memory=7_700),
            ["it uses now: 7700 of 8000 MiB",
             "aliquot.dev/memory: next to nothing is left of 8000; ask for more where it may grow"],
        ),
        (Used(compute=0, memory=0), ["it uses now: 0 of 8000 MiB, 0 of 30 % compute"]),
        (Used(), []),
    ],
)  # fmt: skip
def test_less_or_more_is_advised_where_it_is_worth_a_word(used: Used, lines: list[str]) -> None:
    """With a quarter to spare; nothing by what is not known, and no advice to ask nothing of who uses nothing now."""
    assert told(pod("a"), a=used) == lines


def test_who_has_whole_gpus_is_not_told_to_ask_for_more_of_them() -> None:
    """They are there to be used to the full; of memory it may have asked for less than they have."""
    whole = bound(asks("w", 100, 8_000, phase="Running"), node="n1", held={"GPU-n1-0": (100, 8_000)})
    assert told(whole, w=Used(compute=97, memory=7_900)) == [
        "it uses now: 7900 of 8000 MiB, 97 of 100 % compute",
        "aliquot.dev/memory: next to nothing is left of 8000; ask for more where it may grow",
    ]
    part = bound(asks("p", 90, 8_000, phase="Running"), node="n1", held={"GPU-n1-0": (90, 8_000)})
    assert told(part, p=Used(compute=89))[1:] == [
        "aliquot.dev/compute: next to nothing is left of 90; ask for more where it may grow"
    ]


def test_who_launches_before_it_has_paid_is_told_why_it_is_slow() -> None:
    """Of this pod alone, and also where nothing else is known of it."""
    first, second = pod("a", maker="web"), pod("b", maker="web")
    (line,) = told(first, second, a=Used(unpaid_launches=3))
    assert line.startswith("3 launches passed before being paid for: ")
    assert line.endswith("a whole GPU holds nothing back")
    assert told(first, second, a=Used(unpaid_launches=0), b=Used(unpaid_launches=1)) == []


def test_the_largest_of_a_workload_counts_for_all() -> None:
    """Pods of one controller are alike; those that ended, wait or are another's are left out."""
    first, second, ended = pod("a", maker="web"), pod("b", maker="web"), pod("c", maker="web", phase="Succeeded")
    other, waits = pod("d", maker="else"), made_by("web", asks("e", 30, 8_000))
    uses = {uid: Used(memory=size) for uid, size in (("a", 1_000), ("b", 4_000), ("c", 7_000), ("d", 7_900))}
    lines = told(first, second, ended, other, waits, **uses)
    assert lines == [
        "of 2 pods of ReplicaSet web, 2 seen, the largest uses now: 4000 of 8000 MiB",
        f"aliquot.dev/memory: 5000 would leave a quarter; {ASKED}",
    ]
    assert told(first, second, b=Used(memory=6_500))[0].startswith("of 2 pods of ReplicaSet web, 1 seen")


def test_what_was_used_over_hours_counts_more_than_this_moment() -> None:
    """The most memory and what compute mostly kept within, where the workload was watched for an hour at least."""
    past = Used(compute=1, memory=10, since=NOW - 3 * HOUR, most_memory=4_000, high_compute=20)
    assert told(pod("a"), a=past) == [
        "it used in the last 3 h: 4000 of 8000 MiB at most, 20 of 30 % compute or less nineteen times of twenty",
        "aliquot.dev/memory: 5000 would leave a quarter; if these hours were like others",
        "aliquot.dev/compute: 25 would leave a quarter; if these hours were like others",
    ]
    brief = msgspec.structs.replace(past, since=NOW - HOUR + 1)
    assert told(pod("a"), a=brief)[0] == "it uses now: 10 of 8000 MiB, 1 of 30 % compute"


def test_a_workload_is_known_for_as_long_as_its_youngest_pod() -> None:
    """Hours of one say nothing of another that has just begun; of two long known ones the larger figures count."""
    first, second = pod("a", maker="web"), pod("b", maker="web")
    long = Used(memory=1_000, since=NOW - 5 * HOUR, most_memory=3_000, high_compute=30)
    young = Used(memory=2_000, since=NOW - 60, most_memory=2_000, high_compute=5)
    assert told(first, second, a=long, b=young)[0].endswith("the largest uses now: 2000 of 8000 MiB")
    unknown = Used(memory=2_500)
    assert told(first, second, a=long, b=unknown)[0].endswith("the largest uses now: 2500 of 8000 MiB")
    old = msgspec.structs.replace(young, since=NOW - 2 * HOUR, most_memory=6_000)
    _, _, uses = told(first, second, a=long, b=old)[0].partition("the largest used in the last 2 h: ")
    assert uses == "6000 of 8000 MiB at most, 30 of 30 % compute or less nineteen times of twenty"


def test_nothing_is_said_of_a_pod_without_a_grant() -> None:
    """Nor of one of whose use nobody tells."""
    assert told(asks("a", 30, 8_000), a=Used(memory=1)) == []
    assert told(pod("a")) == []
