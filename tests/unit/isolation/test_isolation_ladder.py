"""Who uses more than granted climbs rung by rung: by what lasts and what is known, memory and compute apart."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_agent.isolation.ladder import LOOKS, Climber, Rung, Rungs, Use, climbed, compute_excess, memory_excess
from support.over_use import RUNGS


def use(mib: int | None = 100, percent: int | None = 0, *, shared: bool = True, fills: bool = False) -> Use:
    """A slice of 1,000 MiB and up to 50 %, used so much."""
    return Use(memory_mib=1000, limit=50, used_mib=mib, used_percent=percent, shared=shared, fills=fills)


@pytest.mark.parametrize(
    ("sample", "what"),
    [
        (use(1000, 50), ""),
        (use(1064, 60), ""),
        (use(1065), "uses 1065 of 1000 MiB"),
        (use(100, 61), "uses 61 % of its GPU's time, its limit is 50 %"),
        (use(100, 100, shared=False), ""),
        (use(1065, 100), "uses 1065 of 1000 MiB"),
        (use(None, fills=True), "makes its account larger, which takes room on the node's disk"),
        (Use(memory_mib=10_000, limit=1, used_mib=10_500, used_percent=0, shared=True), ""),
        (Use(memory_mib=10_000, limit=1, used_mib=10_501, used_percent=0, shared=True), "uses 10501 of 10000 MiB"),
    ],
)
def test_what_is_too_much(sample: Use, what: str) -> None:
    """Beyond what rounding and the driver's own part make of it; compute only beside others."""
    assert (memory_excess(sample) or compute_excess(sample) or "") == what


def after(*samples: tuple[float, Use], rungs: Rungs = RUNGS) -> list[Rung]:
    """The rung after each sample."""
    climber, found = Climber(), []
    for now, sample in samples:
        climber = climbed(climber, sample, now=now, rungs=rungs)
        found.append(climber.rung)
    return found


def test_each_rung_is_reached_in_its_time() -> None:
    """Counted from the sample that brought it onto the ladder."""
    seconds = [0, 10, 20, 40, 50, 79, 80, 139, 140, 900]
    assert after(*((float(at), use(2000)) for at in seconds)) == [
        *[Rung.INSIDE] * 2, Rung.NOTE, Rung.NOTE, Rung.WARN, Rung.WARN, Rung.THROTTLE, Rung.THROTTLE, *[Rung.EVICT] * 2
    ]  # fmt: skip


@pytest.mark.parametrize("top", list(Rung)[1:])
def test_nobody_is_above_the_top(top: Rung) -> None:
    """A node that only warns throttles nobody, whatever is used for however long."""
    rungs = msgspec.structs.replace(RUNGS, top=top)
    assert after(*((10.0 * at, use(2000, 100)) for at in range(50)), rungs=rungs)[-1] is top


def test_nobody_is_given_up_for_compute() -> None:
    """It can be taken back at any moment; memory as well, and it is a matter of memory."""
    assert after(*((10.0 * at, use(100, 100)) for at in range(50)))[-1] is Rung.THROTTLE
    assert after(*((10.0 * at, use(100 if at < 40 else 2000, 100)) for at in range(50)))[-1] is Rung.EVICT


def test_what_does_not_last_leads_nowhere() -> None:
    """Two samples are no over-use, and two without it no end of it; the third counts."""
    flickers = [use(2000), use(2000), use()] * 10
    assert set(after(*((10.0 * at, one) for at, one in enumerate(flickers)))) == {Rung.INSIDE}
    mends = [*[use(2000)] * 10, use(), use(), use(2000), use(), use(), use()]
    assert after(*((10.0 * at, one) for at, one in enumerate(mends)))[-7:] == [
        Rung.THROTTLE, Rung.THROTTLE, Rung.THROTTLE, Rung.THROTTLE, Rung.THROTTLE, Rung.THROTTLE, Rung.INSIDE
    ]  # fmt: skip


uses = st.builds(use, st.none() | st.integers(0, 3000), st.none() | st.integers(0, 100), shared=st.booleans())


tops = st.sampled_from(list(Rung)[1:])


@given(st.lists(st.tuples(uses, tops), max_size=40))
def test_only_what_is_known_moves_anybody(samples: list[tuple[Use, Rung]]) -> None:
    """No sample of unknown use changes a rung; a rise needs an excess, an end three samples without; a top holds."""
    climber, inside = Climber(), {"memory": 0, "compute": 0}
    for at, (sample, top) in enumerate(samples):
        before, rungs = climber, msgspec.structs.replace(RUNGS, top=top)
        climber = climbed(climber, sample, now=10.0 * at, rungs=rungs)
        found = {"memory": memory_excess(sample), "compute": compute_excess(sample)}
        for kind, what in found.items():
            inside[kind] = 0 if what else inside[kind] + (what is not None)
        assert climber.rung <= top
        if set(found.values()) == {None}:
            assert climber == msgspec.structs.replace(before, rung=min(before.rung, top))
        if climber.rung > before.rung:
            assert any(found.values())
        if before.rung and not climber.rung:
            assert not any(found.values())
            assert (inside["memory"] if before.memory.over else inside["compute"]) >= LOOKS


figures = st.none() | st.sampled_from([100, 2000])
percents = st.none() | st.sampled_from([0, 100])


@given(st.lists(figures, max_size=40), st.lists(percents, max_size=40))
def test_what_is_never_told_is_taken_to_be_inside(mibs: list[int | None], percents: list[int | None]) -> None:
    """A driver that tells no use by time, or no memory by process, makes nothing of the other worse or better."""
    quiet = [(10.0 * at, use(mib, None)) for at, mib in enumerate(mibs)]
    assert after(*quiet) == after(*((at, msgspec.structs.replace(one, used_percent=0)) for at, one in quiet))
    hidden = [(10.0 * at, use(None, percent)) for at, percent in enumerate(percents)]
    assert after(*hidden) == after(*((at, msgspec.structs.replace(one, used_mib=100)) for at, one in hidden))


OVER_BOTH, MEMORY, COMPUTE = use(2000, 100), use(2000, None), use(None, 100)


@pytest.mark.parametrize(
    ("then", "rung"),
    [
        ([use(100, None)] * 2, Rung.EVICT),
        ([use(100, None)] * 3, Rung.THROTTLE),
        ([use(None, 0)] * 9, Rung.EVICT),
        ([use(100, 100)] * 2, Rung.EVICT),
        ([use(100, 100)] * 9, Rung.THROTTLE),
        ([use(100, None), use(None, 0)] * 2, Rung.EVICT),
        ([use(100, None), use(None, 0)] * 3, Rung.INSIDE),
    ],
    ids=["two", "memory-ends", "compute-ends", "flicker", "compute-stays", "in-turns-two", "in-turns-three"],
)
def test_memory_ends_by_memory_and_compute_by_compute(then: list[Use], rung: Rung) -> None:
    """Who had too much of both stays for what has not ended, and nobody stays given up for compute."""
    samples = [*[OVER_BOTH] * 20, *then]
    assert after(*((10.0 * at, one) for at, one in enumerate(samples)))[-1] is rung


@pytest.mark.parametrize(("inside", "over"), [(use(100, None), MEMORY), (use(None, 0), COMPUTE)])
def test_one_sample_inside_begins_the_count_anew(inside: Use, over: Use) -> None:
    """Also where the other figure is not known."""
    samples = [over, over, inside] * 5
    assert set(after(*((10.0 * at, one) for at, one in enumerate(samples)))) == {Rung.INSIDE}


def test_one_sample_of_too_much_memory_gives_nobody_up() -> None:
    """However long it has had too much compute: memory counts from its third sample."""
    samples = [*[use(100, 100)] * 40, *[use(2000, 100)] * 3]
    assert after(*((10.0 * at, one) for at, one in enumerate(samples)))[-3:] == [
        Rung.THROTTLE, Rung.THROTTLE, Rung.EVICT
    ]  # fmt: skip
