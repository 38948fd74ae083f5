"""What is kept in mind of heads, shares and cards changes no decision: beside a core that works all of it out anew."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import inf

import msgspec
import pytest

from aliquot_core.inventory import Gpu
from aliquot_scheduler.picture.grid import Cells
from aliquot_scheduler.queues.judging.fitting import ByRow, Fitting
from aliquot_scheduler.queues.letting_in import beside, showing
from aliquot_scheduler.queues.letting_in import walk as walking
from aliquot_scheduler.queues.letting_in.apart import Apart
from aliquot_scheduler.queues.letting_in.beside import Beside
from aliquot_scheduler.queues.letting_in.growth import Growth
from aliquot_scheduler.queues.letting_in.keeping import Keeping
from aliquot_scheduler.queues.letting_in.patience import Patience
from aliquot_scheduler.queues.letting_in.reaching import Reaching
from aliquot_scheduler.queues.letting_in.room_to_come import RoomToCome
from aliquot_scheduler.queues.letting_in.siblings import Left, Side
from aliquot_scheduler.queues.letting_in.walk import Walk
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import ModelQuota, QueueSpec, Quota
from aliquot_scheduler.queues.waiting.line import Line
from aliquot_scheduler.queues.waiting.order import within_guarantee
from aliquot_scheduler.queues.waiting.showings import Minutes, Showings
from aliquot_scheduler.queues.waiting.waiter import Candidate, Waiter
from support.centre import WALL, gpus, make_lease, make_node
from support.queue_replay import FOR_EVER, Job, Replay
from support.queue_stage import queue

# Within a second what is due is not worked out anew, in either core.
STEPS = (0.1, 0.1, 0.4, 5.0)
SETTINGS = QueueSettings(patience=20.0, hold=200.0)
SPECS = {
    "o": queue(guarantee=800),
    "p": queue(),
    "r": queue(priority=1),
    "a": queue("o", guarantee=400),
    "b": queue("o", weight=2),
    "c": queue("p", guarantee=300, limit=1_200),
    "d": queue("p"),
    "e": queue("r", limit=700),
}
# The same queues; what they may have no card for is shown to an autoscaler, as far as their limits allow.
GROWING = {
    name: msgspec.structs.replace(spec, autoscale=True, autoscale_minutes=1)
    for name, spec in (
        SPECS | {"p": queue(limit=1_500), "b": queue("o", weight=2, limit=900), "d": queue("p", limit=800)}
    ).items()
}
# And with limits of one model beside limits of all, memory among them.
OF_MODELS = SPECS | {
    "p": queue(limit=1_400, models={"*H100*": ModelQuota(compute=Quota(limit=300))}),
    "c": queue("p", guarantee=300, limit=800),
    "e": queue(limit=500, memory=Quota(limit=300_000), models={"*A100*": ModelQuota(memory=Quota(limit=150_000))}),
}
LEAVES = "abcde"
NODES, CARDS = 6, 4


def forgetful(patch: pytest.MonkeyPatch) -> None:
    """Let nothing be known from one question to the next that can be worked out."""

    def impatient(patience: Patience, *, now: float) -> set[str]:
        return {uid for uid in patience.since if patience.is_impatient(uid, now=now)}

    def left_of(reaching: Reaching, mine: Side, parent: str) -> Left | None:
        reaching._shares()
        is_user = isinstance(mine, tuple)
        used = (
            reaching._held(parent).get(mine[1], (0, 0)) if is_user else reaching._books.ledger.accounts[str(mine)].used
        )
        return reaching._worked_out(mine, reaching._of(parent), used=used)

    def by_row(fitting: Fitting) -> ByRow:
        return ByRow(grid=fitting._grid, kinds=fitting._kinds, pieces=fitting._pieces)

    def takes(room: ByRow, number: int, among: int) -> bool:
        firsts, compute, least = room._pieces[number]
        return bool(room._most_on(firsts, among)[compute] >= least)

    def stand_back(mine: Beside, _: str) -> Callable[[Candidate], bool]:
        def stands_back(one: Candidate) -> bool:
            if mine._keeping.leaves_room()(one) or within_guarantee(mine._ledger, one):
                return False
            return mine._is_told(one)

        return stands_back

    def is_full(_: Walk, __: str, ___: Line) -> bool:
        return False

    forgetful_of_nodes(patch)
    patch.setattr(Reaching, "_is_within", Reaching._is_enough)
    patch.setattr(Walk, "_is_full", is_full)
    patch.setattr(Beside, "stand_back", stand_back)
    patch.setattr(Patience, "impatient", impatient)
    patch.setattr(Reaching, "_left_of", left_of)
    patch.setattr(Fitting, "by_row", by_row)
    patch.setattr(ByRow, "takes", takes)


def forgetful_of_nodes(patch: pytest.MonkeyPatch) -> None:
    """Let nothing be known of where somebody has room, or would have it."""
    looked_for = RoomToCome._enough

    def leaves_room(keeping: Keeping) -> Callable[[Candidate], bool]:
        keeping._look_again()
        return keeping._worked_out()

    def enough(come: RoomToCome, candidate: Candidate, nodes: Sequence[str], cells: Cells) -> tuple[str, ...]:
        come._able.clear()
        return looked_for(come, candidate, nodes, cells)

    patch.setattr(Keeping, "leaves_room", leaves_room)
    patch.setattr(RoomToCome, "_enough", enough)


def looks_at_all(patch: pytest.MonkeyPatch) -> None:
    """Let everybody who is shown be judged in each round, one by one."""
    look, tell_time = Growth.look, Showings.tell_time

    def look_at_all(growth: Growth, *, now: float) -> list[tuple[Waiter, int]]:
        growth.look_anew()
        return look(growth, now=now)

    def tell_all(showings: Showings, now: float, *, minutes: Minutes) -> tuple[set[str], list[str]]:
        showings._soonest = -inf
        return tell_time(showings, now, minutes=minutes)

    def one_by_one(_: Apart, __: Sequence[Waiter]) -> bool:
        return False

    patch.setattr(Growth, "look", look_at_all)
    patch.setattr(Showings, "tell_time", tell_all)
    patch.setattr(Apart, "have_quota", one_by_one)


def in_so_small_a_cluster(patch: pytest.MonkeyPatch) -> None:
    """All would be looked at closely."""
    patch.setattr(beside, "_MOST_ASKED_IN_VAIN", 0)
    patch.setattr(walking, "_SHORT", 0)


def walk(
    seed: int, *, specs: Mapping[str, QueueSpec] = SPECS, h100: int = 0, steps: int = 90
) -> tuple[list[tuple[object, ...]], int, tuple[int, int]]:
    """All that is decided, kept and told after each step; how many heads had nodes kept, and were shown or put out."""
    chance = random.Random(seed)
    replay, told, had, in_sight = (
        Replay(specs, nodes=NODES, cards=CARDS, settings=SETTINGS),
        list[tuple[object, ...]](),
        0,
        [0, 0],
    )
    for number in range(h100):
        join(replay, f"h{number}", gpus(f"h{number}", CARDS, model="NVIDIA H100 80GB HBM3"))
    for step in range(steps):
        replay.now += chance.choice(STEPS)
        for number in range(chance.choice((0, 1, 3)) if step else 40):
            job = a_job(f"j{step:02}.{number:02}", chance, at=replay.now)
            if h100 and job.compute and chance.random() < 0.3:
                # Its part of the card on which it comes to lie.
                job.memory = None
            replay.submit(job)
        for name in chance.sample(sorted(replay.running), k=min(len(replay.running), chance.choice((0, 0, 1, 2)))):
            replay.end(name)
        waiting = sorted(name for name, job in replay.jobs.items() if job.admitted is None and job.pods == 1)
        if waiting and chance.random() < 0.2:
            replay.give_up(chance.choice(waiting))
        replay.desk.tell_time(replay.now)
        replay.decide()
        memory = replay.queues.register.memory
        kept = {uid: nodes for uid, nodes in memory.kept(now=replay.now).items() if nodes}
        places = {pod.metadata.uid: pod.spec.node_name for _, pods in replay.running.values() for pod in pods}
        notices = {waiter.uid: replay.queues.notice(waiter) for waiter in replay.queues.waiting()}
        showings = replay.queues.register.showings
        told.append((places, kept, notices, sorted(showings.shown)))
        had += len(kept)
        in_sight[0] += len(showings.shown)
        in_sight[1] += sum(map(showings.runs, notices)) - len(showings.shown)
    return told, had, (in_sight[0], in_sight[1])


def join(replay: Replay, name: str, cards: Sequence[Gpu]) -> None:
    """One more node, alive for ever."""
    lease = make_lease(name, renewed="2026-11-21T10:00:01.000000Z")
    spec = msgspec.structs.replace(lease.spec, lease_duration_seconds=FOR_EVER)
    replay.picture.node_seen(make_node(name, cards))
    replay.picture.lease_seen(msgspec.structs.replace(lease, spec=spec), wall=WALL)


def a_job(name: str, chance: random.Random, *, at: float) -> Job:
    """A piece of a card, a few whole ones, or a gang; some of them large."""
    gpus = chance.choice((0, 0, 0, 2, 4))
    return Job(
        name=name,
        queue=chance.choice(LEAVES),
        user=chance.choice(("u", "v")),
        kind="",
        at=at,
        runs=1e9,
        compute=100 * gpus or chance.choice((0, 20, 25, 50, 75, 100)),
        memory=1_000 * chance.randrange(1, 60),
        pods=chance.choice((1, 1, 1, 1, 2, 3)),
        gpus=gpus,
        priority=chance.choice((0, 0, 1)),
    )


@pytest.mark.parametrize("first", [3, 7])
def test_what_is_remembered_decides_as_if_it_was_worked_out(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same pods in the same places, the same nodes for the same heads, the same words, after each step."""
    kept = 0
    in_so_small_a_cluster(monkeypatch)
    for seed in range(first, first + 2):
        remembered, had, _ = walk(seed)
        kept += had
        with monkeypatch.context() as patch:
            forgetful(patch)
            anew, *_ = walk(seed)
        for step, (mine, other) in enumerate(zip(remembered, anew, strict=True)):
            assert mine == other, (seed, step)
    assert kept > 100, "nodes were hardly kept for anybody"


@pytest.mark.parametrize(("first", "most"), [(0, 100), (10, 6)])
def test_who_is_shown_is_as_if_everybody_was_judged_anew(
    first: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below all queues in each round, and one by one: the same are shown, and come in."""
    shown = put_out = 0
    monkeypatch.setattr(showing, "MOST_SHOWN", most)
    for seed in range(first, first + 2):
        remembered, _, in_sight = walk(seed, specs=GROWING)
        shown, put_out = shown + in_sight[0], put_out + in_sight[1]
        with monkeypatch.context() as patch:
            looks_at_all(patch)
            anew, *_ = walk(seed, specs=GROWING)
        for step, (mine, other) in enumerate(zip(remembered, anew, strict=True)):
            assert mine == other, (seed, step)
    assert min(shown, put_out) > 50, f"{shown} were shown, {put_out} put out: hardly anybody"


@pytest.mark.parametrize("seed", [0, 7])
def test_who_is_over_a_limit_is_passed_over_as_if_it_was_asked_also_where_models_are_limited(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On whatever card: some leave out their memory, and have less of it on the one model than on the other."""
    full = Walk._is_full
    passed_over = Counter[str]()

    def is_full(walk: Walk, name: str, line: Line) -> bool:
        passed_over[name] += (found := full(walk, name, line))
        return found

    monkeypatch.setattr(Walk, "_is_full", is_full)
    remembered, *_ = walk(seed, specs=OF_MODELS, h100=2, steps=70)
    with monkeypatch.context() as patch:
        forgetful(patch)
        anew, *_ = walk(seed, specs=OF_MODELS, h100=2, steps=70)
    for step, (mine, other) in enumerate(zip(remembered, anew, strict=True)):
        assert mine == other, step
    assert passed_over.total() > 10, f"{passed_over}: lines were hardly ever passed over"


def _may_fit(walk: Walk, candidate: Candidate) -> bool:
    return candidate.shape not in walk._refused


def _was_not_refused(walk: Walk, candidate: Candidate) -> bool:
    if candidate.number >= len(walk._may):
        walk.ask_cards()
    return bool(walk._may[candidate.number])


# What is passed over without a look, and how all of it is looked at; and whether the words are the same then too.
SKIPS: dict[str, tuple[type, str, Callable[..., object], bool]] = {
    "a round, since no card has room for anybody": (Walk, "is_over", lambda _, __: False, True),
    "a line of which nobody could come in": (Walk, "is_hopeless", lambda _, __, ___: False, True),
    "users for whose pods no card has room": (Walk, "_able", lambda _, __, ___: None, True),
    "a user for none of whose pods a card has room": (Walk, "_none_able", lambda _, __: False, True),
    "places in a line for which no card has room": (
        Walk,
        "_places",
        lambda _, heads, start, __: range(start, len(heads)),
        True,
    ),
    "pods for which no card has room": (Walk, "may_fit", _may_fit, True),
    "shapes for which no card was found": (Walk, "may_fit", _was_not_refused, False),
    "pods to which others' nodes leave no room": (Keeping, "leaves_room", lambda _: lambda _: True, False),
}


@pytest.fixture(scope="module")
def as_it_is() -> list[tuple[object, ...]]:
    """A walk with all of that passed over."""
    with pytest.MonkeyPatch.context() as patch:
        in_so_small_a_cluster(patch)
        told, kept, _ = walk(3, steps=50)
    assert kept > 50, "nodes were hardly kept for anybody"
    return told


@pytest.mark.parametrize("row", SKIPS)
def test_what_is_passed_over_would_be_refused(
    row: str, as_it_is: list[tuple[object, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looked at or not, the same pods come in the same places; of two skips alone there is less to say."""
    where, what, instead, words = SKIPS[row]
    in_so_small_a_cluster(monkeypatch)
    monkeypatch.setattr(where, what, instead)
    looked_at, _, _ = walk(3, steps=50)
    for step, (mine, other) in enumerate(zip(as_it_is, looked_at, strict=True)):
        assert mine == other if words else mine[:2] == other[:2], step
