"""Replays: the rules of openb's README, and the published curves."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot_scheduler.simulating.drawing import draw_order
from aliquot_scheduler.simulating.fleet import ALL, Fleet
from aliquot_scheduler.simulating.replay import FAILED
from aliquot_scheduler.simulating.runs import MixSource, PolicyName, begin, report
from aliquot_scheduler.simulating.workload import Machine, Need
from support.traces import machines, needs, openb, published, workload

POLICIES = [(policy, mix) for policy in PolicyName for mix in MixSource if policy == "aliquot" or mix == "given"]


@pytest.mark.parametrize(("policy", "mix"), POLICIES)
@given(some=machines, pods=needs, seed=st.integers(0, 9))
@settings(max_examples=25, deadline=None)
def test_who_fits_is_placed_and_nothing_is_given_twice(
    policy: PolicyName, mix: MixSource, some: list[Machine], pods: list[Need], seed: int
) -> None:
    """Whatever the policy: each pod at once where it fits, and only where it fits."""
    asked = workload(some, pods)
    replay = begin(asked, policy=policy, mix=mix, seed=seed, line=None)
    fleet = replay._fleet
    before = Fleet(some)
    for number in replay.steps():
        need = asked.needs[asked.pods[number - 1]]
        able = before.able(need, ALL, before.takes(need, ALL))
        where = replay._where[-1]
        assert bool(able.any()) is (where != FAILED)
        assert where == FAILED or able[where]
        for left in (fleet.milli, fleet.card_left, fleet.cores, fleet.memory):
            assert left.min() >= 0
        taken = before.milli.sum() - fleet.milli.sum()
        assert taken == (0 if where == FAILED else need.total)
        for name in ("milli", "card_left", "cores", "memory"):
            setattr(before, name, getattr(fleet, name).copy())


@pytest.mark.parametrize(("policy", "mix"), POLICIES)
def test_a_whole_gpu_is_one_with_the_memory_that_is_asked_for(policy: PolicyName, mix: MixSource) -> None:
    """It is closed to others, who may ask for however little memory; and on smaller cards nobody finds room."""
    small = Machine(name="small", cores=64_000, memory=65_536, gpus=4, model="T4", card=16_384)
    large = msgspec.structs.replace(small, name="large", gpus=1, card=24_576)
    whole = Need(cores=1_000, memory=1_024, gpus=1, milli=1_000, card=20_000)
    little = msgspec.structs.replace(whole, milli=50, card=100)
    replay = begin(workload([small, large], [whole, little, whole]), policy=policy, mix=mix, seed=1, line=None)
    assert list(replay.steps())
    assert replay.outcome().where.tolist() == [1, 0, FAILED]


def test_a_share_of_memory_is_what_the_agent_gives() -> None:
    """Whole MiB of it and no begun one, so that what is left is not less than compute's part."""
    fleet = Fleet([Machine(name="n", cores=1_000, memory=1_024, gpus=1, model="T4", card=16_383)])
    share = Need(cores=0, memory=0, gpus=1, milli=460)
    assert fleet.card_need(share, ALL).tolist() == [[16_383 * 46 // 100]]


@pytest.mark.parametrize(
    ("variant", "policy", "paper"),
    [
        ("default", PolicyName.BESTFIT, "BestFit"),
        ("gpushare60", PolicyName.GPUPACKING, "GpuPacking"),
        ("gpuspec33", PolicyName.FGD, "FGD"),
    ],
)
def test_the_first_arrivals_give_the_published_curves(variant: str, policy: PolicyName, paper: str) -> None:
    """Allocation and fragments to the printed digit; benchmarks/placement/quality.py does all of it."""
    asked, line = openb(variant, seed=43, arrivals=1_000)
    replay = begin(asked, policy=policy, mix=MixSource.GIVEN, seed=43, line=line)
    assert sum(1 for _ in replay.steps()) == 1_000
    outcome = replay.outcome()
    for kind, values in (("alloc", outcome.allocated), ("frag", outcome.fragments)):
        curve, known = outcome.curve(values), published(variant, paper, seed=43, kind=kind)
        whole = sorted(curve)[:-1]
        assert len(whole) > 5
        assert max(abs(curve[x] - known[x]) for x in whole) < 0.011


def test_a_run_from_the_same_seed_is_the_same_run() -> None:
    """Ties are drawn from it, and nothing else is random."""
    asked, _ = openb("default", seed=42, arrivals=300)

    def run(seed: int) -> list[int]:
        replay = begin(asked, policy=PolicyName.ALIQUOT, mix=MixSource.LEARNT, seed=seed, line=None)
        return [len(replay._where) and replay._where[-1] for _ in replay.steps()]

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_a_run_that_is_broken_off_is_counted_as_far_as_it_went() -> None:
    """And says so."""
    asked, _ = openb("default", seed=42, arrivals=400)
    replay = begin(asked, policy=PolicyName.BESTFIT, mix=MixSource.GIVEN, seed=42, line=None)
    for done in replay.steps():
        if done == 150:
            break
    told = report(
        replay.outcome(),
        workload=asked,
        policy=PolicyName.BESTFIT,
        mix=MixSource.GIVEN,
        seed=42,
        line=False,
        seconds=0.0,
    )
    assert (told.pods, told.partial, told.mix, told.ties) == (150, True, "none", "fresh")
    assert told.placed + told.failed == 150


@given(some=machines, pods=needs, seed=st.integers(0, 5))
@settings(deadline=None)
def test_a_drawn_order_asks_for_no_more_than_130_percent(some: list[Machine], pods: list[Need], seed: int) -> None:
    """And has every pod of a list that asks for less."""
    asked = workload(some, pods)
    drawn = draw_order(np.random.default_rng(seed), needs=asked.needs, pods=asked.pods, capacity=asked.capacity)
    totals = np.array([need.total for need in asked.needs])[asked.pods]
    assert totals[drawn].sum() <= 1.3 * asked.capacity or not totals[drawn].any()
    if totals.sum() <= 1.3 * asked.capacity:
        assert set(drawn.tolist()) == set(range(len(pods)))
