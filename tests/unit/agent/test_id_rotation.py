"""Ids of ended pods are replaced; ids of living ones stay."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from aliquot_agent.starting.id_rotation import IdRotation, slot_of, spent_ids
from aliquot_agent.starting.kubelet_view import Recorded
from aliquot_core.objects import Pod

SLOTS = tuple(f"a1b2c3-{number:02}" for number in range(8))


def record(uid: str, *ids: str) -> Recorded:
    """What the kubelet has of a pod."""
    return Recorded(uid=uid, container="main", resource="aliquot.dev/compute", ids=frozenset(ids), names=())


def pod(phase: str) -> Pod:
    """A pod that is so far."""
    return msgspec.convert({"status": {"phase": phase}}, Pod)


def test_who_ended_and_who_lives() -> None:
    """Ended, gone, running, and gone with a process that lingers."""
    recorded = [record("ended", "a"), record("gone", "b"), record("runs", "c"), record("lingers", "d")]
    pods = {"ended": pod("Succeeded"), "runs": pod("Running")}
    living, spent = spent_ids(recorded, pods=pods, standing={"lingers"})
    assert (living, spent) == (frozenset({"c", "d"}), frozenset({"a", "b"}))


def test_a_spent_id_is_replaced_once_and_the_new_one_stays() -> None:
    """The kubelet's later clean-up does not turn the slot back under a pod that may have taken the new id."""
    rotation = IdRotation()
    rotation.turn(SLOTS, living=frozenset(), spent=frozenset({"a1b2c3-03"}))
    assert rotation.id_of("a1b2c3-03") == "a1b2c3-03a"
    rotation.turn(SLOTS, living=frozenset(), spent=frozenset())
    assert rotation.id_of("a1b2c3-03") == "a1b2c3-03a"
    rotation.turn(SLOTS, living=frozenset(), spent=frozenset({"a1b2c3-03", "a1b2c3-03a"}))
    assert rotation.id_of("a1b2c3-03") == "a1b2c3-03b"
    rotation.turn(SLOTS, living=frozenset(), spent=frozenset({"a1b2c3-03b"}))
    assert rotation.id_of("a1b2c3-03") == "a1b2c3-03"


def test_an_agent_that_starts_anew_keeps_what_living_pods_hold() -> None:
    """It finds the turns in the kubelet's record."""
    rotation = IdRotation()
    rotation.turn(SLOTS, living=frozenset({"a1b2c3-05c"}), spent=frozenset())
    assert rotation.id_of("a1b2c3-05") == "a1b2c3-05c"


def test_turns_do_not_run_out() -> None:
    """After z comes aa."""
    rotation = IdRotation()
    held = frozenset(["a1b2c3-00", *(f"a1b2c3-00{letter}" for letter in "abcdefghijklmnopqrstuvwxyz")])
    rotation.turn(SLOTS, living=frozenset(), spent=held)
    assert rotation.id_of("a1b2c3-00") == "a1b2c3-00aa"
    assert slot_of("a1b2c3-00aa") == "a1b2c3-00"
    assert slot_of("ffffff-b07c") == "ffffff-b07"


@given(st.lists(st.tuples(st.sampled_from(["admit", "end", "clean", "restart"]), st.integers(0, 7)), max_size=60))
def test_the_kubelet_always_finds_every_slot_that_no_living_pod_holds(steps: list[tuple[str, int]]) -> None:
    """A played kubelet that forgets ended pods only now and then is never short of ids, nor given one twice."""
    rotation = IdRotation()
    living: dict[int, str] = {}
    spent: set[str] = set()
    for step, number in steps:
        if step == "restart":
            rotation = IdRotation()
        elif step == "clean":
            spent.clear()
        elif step == "end" and number in living:
            spent.add(living.pop(number))
        rotation.turn(SLOTS, living=frozenset(living.values()), spent=frozenset(spent))
        offered = {rotation.id_of(slot) for slot in SLOTS}
        assert len(offered) == len(SLOTS)
        assert set(living.values()) <= offered
        assert not offered & spent
        if step == "admit" and number not in living:
            living[number] = rotation.id_of(SLOTS[number])
