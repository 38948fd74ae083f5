"""No container starts on what others hold, whoever they are: each case, and at last as a property."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_agent.pods.standing import Standing
from aliquot_agent.starting.decision import Decision, Known, Refuse, Start, Wait
from aliquot_agent.starting.room import totals
from aliquot_agent.starting.starts import decide
from aliquot_core.claims import Claim
from aliquot_core.door import PreStart
from aliquot_core.grant import ContainerGrant, Grant, encode_grant
from aliquot_core.objects import Pod
from aliquot_core.quantities import MiB, Percent
from support.starts import CARDS, NAMES, ask, edited, make_pod, record, regranted, slice_of, standing


def test_a_slice_that_others_hold_is_refused() -> None:
    """The node has the last word: two grants for one place never run together."""
    pods = [make_pod("u1", app={"main": (60, 8_000)}), make_pod("u2", app={"main": (60, 8_000)})]
    decision = ask({"y"}, pods=pods, recorded=[record("u1", "main", {"x"}), record("u2", "main", {"y"})])
    assert isinstance(decision, Refuse)
    assert "120 % of 100 % compute" in decision.reason


@pytest.mark.parametrize(("others", "words"), [(1, ", 1 other pod holds slices"), (2, ", 2 other pods hold slices")])
def test_a_refusal_counts_the_others_in_plain_words(others: int, words: str) -> None:
    """The sentence stands in the pod's Event, where its author reads it."""
    standing = {
        f"o{number}": Standing(pod="team/o", claims={"GPU-a": Claim(compute=Percent(40), memory=MiB(1))})
        for number in range(others)
    }
    pod = make_pod("u1", app={"main": (70, 8_000)})
    decision = ask({"x"}, pods=[pod], recorded=[record("u1", "main", {"x"})], standing=standing)
    assert isinstance(decision, Refuse)
    assert words in decision.reason


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_an_ended_pod_holds_nothing(phase: str) -> None:
    """A slice is free when its pod ended, though the kubelet still remembers the ids."""
    pods = [make_pod("u1", app={"main": (60, 8_000)}, phase=phase), make_pod("u2", app={"main": (60, 8_000)})]
    decision = ask({"y"}, pods=pods, recorded=[record("u1", "main", {"x"}), record("u2", "main", {"y"})])
    assert isinstance(decision, Start)


@pytest.mark.parametrize("last", ["gone", "Failed", "Running"])
def test_whoever_waits_for_the_last_process_of_a_pod_is_told_of_which(last: str) -> None:
    """After a restart, say: by all that the author sees the slice is free; of one that runs there is no more to say."""
    before = [] if last == "gone" else [make_pod("u1", app={"main": (60, 8_000)}, phase=last)]
    recorded = [record("u1", "main", {"x"}), record("u2", "main", {"y"})]
    pods = [*before, make_pod("u2", app={"main": (60, 8_000)})]
    decision = ask({"y"}, pods=pods, recorded=recorded, standing=standing(60, 8_000))
    assert isinstance(decision, Refuse)
    told = "1 other pod holds slices of it"
    if last != "Running":
        told += "; of team/pod-u1, over already, a process still runs: this starts when that has ended"
    assert decision.reason.endswith(told)


def test_a_pod_whose_object_is_gone_still_holds_what_it_had() -> None:
    """A forced deletion removes the object at once; the kubelet still holds the containers."""
    standing = {"u1": Standing(pod="team/gone", claims={"GPU-a": Claim(compute=Percent(60), memory=MiB(1))})}
    pod = make_pod("u2", app={"main": (60, 8_000)})
    recorded = [record("u1", "main", {"x"}), record("u2", "main", {"y"})]
    assert isinstance(ask({"y"}, pods=[pod], recorded=recorded, standing=standing), Refuse)
    assert isinstance(ask({"y"}, pods=[pod], recorded=recorded[1:], standing=standing), Refuse)
    assert isinstance(ask({"y"}, pods=[pod], recorded=recorded), Start)


def half_elsewhere() -> Pod:
    """A pod of two containers, of which one is granted a GPU that is not here."""
    pod = make_pod("u1", app={"here": (60, 8_000), "there": (1, 1)})
    parts = {"here": slice_of(60, 8_000), "there": slice_of(1, 1, "GPU-z")}
    containers = {name: ContainerGrant(slices=(part,), isolation="observe") for name, part in parts.items()}
    return edited(pod, encode_grant(Grant(node="n1", pod="u1", containers=containers)))


BAD_GRANTS = {
    "half on a GPU that is not here": half_elsewhere(),
    "another pod's": regranted(make_pod("u1", app={"main": (60, 8_000)}), uid="u9", part=slice_of(60, 8_000)),
    "another node's": regranted(make_pod("u1", app={"main": (60, 8_000)}), node="n2", part=slice_of(60, 8_000)),
    "more than asked": regranted(make_pod("u1", app={"main": (1, 8_000)}), part=slice_of(60, 8_000)),
}


@pytest.mark.parametrize("row", BAD_GRANTS)
def test_a_pod_whose_grant_is_bad_keeps_nobody_out(row: str) -> None:
    """It will never start, so a grant copied from another pod must not block a GPU."""
    pods = [BAD_GRANTS[row], make_pod("u2", app={"main": (60, 8_000)})]
    decision = ask({"y"}, pods=pods, recorded=[record("u1", "main", {"x"}), record("u2", "main", {"y"})])
    assert isinstance(decision, Start)


def test_a_smaller_grant_written_over_that_of_a_running_pod_frees_nothing() -> None:
    """Its containers run with what they were given, whatever stands in the annotation now."""
    pods = [make_pod("u1", app={"main": (10, 100)}), make_pod("u2", app={"main": (60, 8_000)})]
    recorded = [record("u1", "main", {"x"}), record("u2", "main", {"y"})]
    assert isinstance(ask({"y"}, pods=pods, recorded=recorded, standing=standing(60, 8_000)), Refuse)
    assert isinstance(ask({"y"}, pods=pods, recorded=recorded), Start)


def test_a_container_starts_only_under_the_grant_that_its_pod_started_with() -> None:
    """A second grant would be counted instead of the first, under which other containers of the pod still run."""
    pod, recorded = make_pod("u1", app={"main": (30, 8_000)}), [record("u1", "main", {"x"})]
    decision = ask({"x"}, pods=[pod], recorded=recorded, standing=standing(60, 8_000))
    assert isinstance(decision, Refuse)
    assert "another than the one" in decision.reason
    assert isinstance(ask({"x"}, pods=[pod], recorded=recorded, standing=standing(30, 8_000)), Start)


def test_an_ended_pod_of_which_a_process_lives_still_holds() -> None:
    """The kubelet fails a pod that it can't admit again and ends its processes afterwards."""
    pods = [make_pod("u1", app={"main": (60, 8_000)}, phase="Failed"), make_pod("u2", app={"main": (60, 8_000)})]
    recorded = [record("u1", "main", {"x"}), record("u2", "main", {"y"})]
    assert isinstance(ask({"y"}, pods=pods, recorded=recorded, standing=standing(60, 8_000)), Refuse)


def test_a_whole_gpu_is_closed_to_best_effort_too() -> None:
    """100 % is nobody else's, even for a pod that asks for no compute."""
    whole = make_pod("u1", app={"main": (100, 8_000)})
    guest = make_pod("u2", app={"main": (10, 10)})
    decision = ask({"y"}, pods=[whole, guest], recorded=[record("u1", "main", {"x"}), record("u2", "main", {"y"})])
    assert isinstance(decision, Refuse)
    assert "granted whole" in decision.reason


@given(
    st.lists(st.tuples(st.integers(1, 100), st.integers(1, 80_000)), min_size=1, max_size=12),
    st.permutations(range(12)),
)
def test_whatever_is_granted_no_gpu_ever_holds_more_than_it_has(asked: list[tuple[int, int]], order: list[int]) -> None:
    """However wrong the grants and in whatever order they come: the pods that were let start fit together."""
    pods = [make_pod(f"u{number}", app={"main": one}) for number, one in enumerate(asked)]
    recorded = [record(f"u{number}", "main", {f"id{number}"}) for number in range(len(asked))]
    started: dict[str, Standing] = {}
    for number in [one for one in order if one < len(asked)]:
        decision = ask({f"id{number}"}, pods=pods, recorded=recorded, standing=started)
        if isinstance(decision, Start):
            started[f"u{number}"] = Standing(pod=decision.pod.key, claims=decision.claims)
    total, holders = totals(one.claims for one in started.values())["GPU-a"]
    assert total.compute <= Percent(100)
    assert total.memory <= MiB(80_000)
    assert not total.closes or holders == 1


def test_of_two_grants_for_one_place_the_older_pod_starts() -> None:
    """Two grants for one place are a scheduler's mistake; each waiting for the other would be two pods lost."""
    pods = [make_pod("u1", app={"main": (60, 8_000)}), make_pod("u2", app={"main": (60, 8_000)})]
    recorded = [record("u1", "main", {"x"}), record("u2", "main", {"y"})]
    assert isinstance(ask({"y"}, pods=pods, recorded=recorded), Refuse)
    assert isinstance(ask({"x"}, pods=pods, recorded=recorded), Start)


RUNS = [
    {"phase": "Running"},
    {"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"running": {}}}]},
    {"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"terminated": {}}}]},
    {"phase": "Pending", "containerStatuses": [{"name": "a", "state": {"running": {}}}, {"name": "b", "state": {}}]},
]
OLDER, YOUNGER = (make_pod(uid, app={"main": (60, 8_000)}) for uid in ("u1", "u2"))
BOTH = [record("u1", "main", {"x"}), record("u2", "main", {"y"})]
HOLDS = {"GPU-a": Claim(compute=Percent(60), memory=MiB(8_000))}


def with_status(pod: Pod, status: dict[str, Any]) -> Pod:
    """The pod as its kubelet reports it."""
    return msgspec.structs.replace(pod, status=msgspec.convert(status, type(pod.status)))


@pytest.mark.parametrize("status", RUNS)
def test_a_younger_pod_that_runs_is_not_put_out_by_an_older_one(status: dict[str, Any]) -> None:
    """Where our own word was lost with the folder, what its status tells counts."""
    pods = [OLDER, with_status(YOUNGER, status)]
    assert isinstance(ask({"x"}, pods=pods, recorded=BOTH), Refuse)
    assert isinstance(ask({"y"}, pods=pods, recorded=BOTH), Start)


@pytest.mark.parametrize("elder", [{"phase": "Pending"}, {"phase": "Running"}])
def test_our_own_word_goes_before_age_and_status(elder: dict[str, Any]) -> None:
    """Who was let start is there for certain; a status may be from before a reboot."""
    held = {"u2": Standing(pod="team/pod-u2", claims=HOLDS)}
    pods = [with_status(OLDER, elder), YOUNGER]
    assert isinstance(ask({"x"}, pods=pods, recorded=BOTH, standing=held), Refuse)
    assert isinstance(ask({"y"}, pods=pods, recorded=BOTH, standing=held), Start)


def test_of_two_that_ran_before_a_reboot_one_starts() -> None:
    """Both are Running by their status, and neither is: a grant was altered while its pod ran."""
    pods = [with_status(pod, {"phase": "Running"}) for pod in (OLDER, YOUNGER)]
    assert isinstance(ask({"x"}, pods=pods, recorded=BOTH), Start)
    assert isinstance(ask({"y"}, pods=pods, recorded=BOTH), Refuse)


def test_a_slice_that_is_free_within_seconds_is_waited_for() -> None:
    """A refusal would cost 12 s; but what is held for who knows how long is told at once."""
    held = {"gone": Standing(pod="team/gone", claims=HOLDS)}

    def asked(coming: set[str]) -> Decision:
        known = Known(
            node="n1",
            names=NAMES,
            inventory=CARDS,
            pods={"u1": OLDER},
            recorded=tuple(BOTH),
            standing=held,
            coming=frozenset(coming),
        )
        return decide(PreStart(call=1, resource=NAMES.compute, ids=["x"]), known=known)

    assert isinstance(asked({"gone"}), Wait)
    assert isinstance(asked(set()), Refuse)
