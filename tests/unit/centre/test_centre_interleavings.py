"""The desk under every order of events: what lands never over-grants, and nothing is kept for nobody."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot_core.claims import NOTHING, Claim, overdrawn
from aliquot_core.quantities import MiB
from aliquot_core.request import asks
from aliquot_scheduler.picture.picture import Picture
from support.centre import MEMORY, NAMES
from support.centre_api import Held, wants_a_place
from support.centre_world import STEPS, World

ALL = [step.__name__ for step, times in STEPS.items() for _ in range(times)]


def check_nothing_is_over_granted(held: Held) -> None:
    """No GPU is given more often than it is there."""
    on: dict[tuple[str, str], list[Claim]] = defaultdict(list)
    for one in held.values():
        for gpu, claim in one.items():
            on[gpu].append(claim)
    for gpu, parts in on.items():
        total = NOTHING
        for part in parts:
            total = total.beside(part)
        assert overdrawn(total, memory=MiB(MEMORY), holders=len(parts)) is None, (gpu, held)


def held_by(world: World) -> Held:
    """Who holds what in the picture."""
    return {uid: dict(held) for uid, held in world.picture.holdings.everything().items()}


def free_places(picture: Picture) -> dict[str, list[tuple[int, ...]]]:
    """What the grid has of each GPU, and the node beside them; which nodes are in, heart-beats decide anew."""
    grid, found = picture.grid, {}
    for name, known in picture.nodes.items():
        columns = (grid.open, grid.compute, grid.memory, grid.holders, grid.closed)
        gpus = [tuple(int(numbers[known.row, column]) for numbers in columns) for column in known.columns.values()]
        found[name] = [*gpus, tuple(picture.hosts.free[known.row].tolist())]
    return found


def check_now(world: World) -> None:
    """What holds after each step."""
    check_nothing_is_over_granted(world.api.granted())
    held = held_by(world)
    check_nothing_is_over_granted(held)
    for uid in held:
        assert world.desk.promises.of(uid) is not None or uid in world.known, f"{uid} is nobody"


def check_when_calm(world: World) -> None:
    """What holds when every write and word has arrived and every promise is old."""
    world.calm()
    assert held_by(world) == world.api.granted()
    anew = world.read_anew()
    assert free_places(world.picture) == free_places(anew)
    assert world.picture.hosts.nominated == anew.hosts.nominated
    assert len(world.desk.promises) == 0
    assert not world.desk._places.offers
    assert not world.turns.under_way()
    slices = [pod for pod in world.api.pods.values() if asks(pod, names=NAMES)]
    everybody = {
        pod.metadata.uid
        for pod in slices
        if wants_a_place(pod) and all(gate.name == NAMES.gate for gate in pod.spec.scheduling_gates)
    }
    assert {waiter.uid for waiter in world.turns.waiting()} == everybody
    assert world.turns.books.ledger.charges().keys() == {
        pod.metadata.uid for pod in slices if pod.spec.node_name and not pod.ended
    }


def check_in_the_end(world: World) -> None:
    """Who is let through is bound, and who waits then fits nowhere."""
    world.check_to_the_end()
    for waiter in world.turns.waiting():
        assert world.api.of(waiter.uid) is not None
        assert not world.desk.finder.survey(waiter.pod, waiter.demand).fits.any(), waiter.uid


@given(st.lists(st.tuples(st.sampled_from(ALL), st.integers(0, 2**16)), min_size=60, max_size=120))
@settings(max_examples=60, deadline=None)
def test_no_order_of_events_over_grants_or_leaks(steps: list[tuple[str, int]]) -> None:
    """Filter, bind, delete, crash, lagging watch, lost answers, silent agents, pods without slices: in any order."""
    world = World()
    for name, seed in steps:
        world.chance = random.Random(seed)
        getattr(world, name)()
        check_now(world)
    check_when_calm(world)
    check_in_the_end(world)


@pytest.mark.parametrize("first", range(0, 600, 200))
def test_long_walks_do_not_either(first: int) -> None:
    """What a shrinking search is too slow for: 200 walks of 100 steps, each by its seed."""
    for seed in range(first, first + 200):
        world = World()
        world.chance = random.Random(seed)
        for name in world.chance.choices(ALL, k=100):
            getattr(world, name)()
            check_now(world)
        check_when_calm(world)
        check_in_the_end(world)
