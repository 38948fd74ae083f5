"""A guarantee that is there in sum and in pieces is met: who has borrowed goes, and who lies in the way is moved.

Against an oracle that lays everybody anew in every way: if the owner fits beside all who lie inside their guarantees, a
plan is found, and when it has come true all of them run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from aliquot_core.objects import OwnerReference
from aliquot_scheduler.queues.said.entry import Plan
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import QueueSpec, Quota
from aliquot_scheduler.queues.said.tree import plant
from aliquot_scheduler.queues.telling.standing import Standing
from aliquot_scheduler.reclaim.inquiry import Inquiry
from aliquot_scheduler.reclaim.patience import AT_ONCE as NODES_AT_ONCE
from aliquot_scheduler.reclaim.patience import DEPTHS, FIRST, MOST_NODES, WAYS, turned
from aliquot_scheduler.reclaim.residents import Budget
from support.centre import NAMES
from support.pieces_oracle import Ask, fits
from support.queue_stage import queue
from support.reclaim_stage import A_WHILE, ReclaimStage

replace = msgspec.structs.replace

CARD = 80_000
AT_ONCE = QueueSettings(owed=0)
FIRM = {"preemptible": "false"}
PAIR = {"group-size": "2"}


class Lies(msgspec.Struct, frozen=True, kw_only=True):
    """A pod on a card; `by` is who makes it anew."""

    card: str
    compute: int
    memory: int = 1_000
    by: str = "job"
    more: Mapping[str, Any] = {}


class Board(ReclaimStage):
    """Pods lie where they are put, and may lie anywhere else as well."""

    def put(self, uid: str, lies: Lies) -> None:
        """Let in and bound, on that card."""
        more = {**lies.more, "notes": {**lies.more.get("notes", {}), "gpu-uuid": lies.card}}
        self.submit(uid, lies.compute, lies.memory, queue=uid[0], **more)
        if lies.by:
            self._made(uid, by=f"{lies.by}-{uid}")

    def free(self) -> None:
        """They had lain there by chance."""
        for uid in list(self.pods):
            self.unpin(uid)

    def made_anew(self, uid: str, lies: Lies) -> str:
        """Whoever made it makes another."""
        self.submit(f"{uid}-again", lies.compute, lies.memory, queue=uid[0], **lies.more)
        if lies.by:
            self._made(f"{uid}-again", by=f"{lies.by}-{uid}")
        return f"{uid}-again"

    def _made(self, uid: str, *, by: str) -> None:
        owner = OwnerReference(kind="Job", name=by, uid=by, controller=True)
        pod = self.pods[uid]
        self.see(replace(pod, metadata=replace(pod.metadata, owner_references=[owner])))


def board(
    there: Mapping[str, Lies], queues: Mapping[str, QueueSpec], *, nodes: Sequence[int] = (2,), **more: Any
) -> Board:
    """All of them run, by queues that let them in; then these queues hold."""
    everything = 100 * sum(nodes)
    stage = Board({"b": queue(guarantee=everything), "c": queue(), "f": queue()}, nodes=nodes, **more)
    if any(lies.more.get("notes") == FIRM for lies in there.values()):
        stage.queues.queues_seen({"b": queue(), "c": queue(), "f": queue(guarantee=everything)})
    for uid, lies in there.items():
        stage.put(uid, lies)
    while stage.run(after=1.0):
        pass
    assert all(stage.pods[uid].spec.node_name for uid in there)
    stage.free()
    stage.queues.queues_seen(queues)
    return stage


def carried_out(stage: Board, there: Mapping[str, Lies]) -> set[str]:
    """Everybody goes who was asked, those who are moved come again, and all is quiet; who went for good."""
    went, again = set[str](), dict[str, str]()
    for _ in range(6):
        stage.decide()
        moved = stage.queues.register.refuges.movers()
        asked = stage.evict()
        for uid in asked:
            stage.gone(uid)
        # Who goes for good comes again, too, and waits.
        again |= {uid: stage.made_anew(uid, there[uid]) for uid in asked}
        went |= {uid for uid in asked if uid not in moved}
        stage.run(after=A_WHILE)
    assert all(stage.pods[new].spec.node_name for uid, new in again.items() if uid not in went)
    return went


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Who lies there, what `a` asks then, and who goes for it, or is moved."""

    there: Mapping[str, Lies]
    asks: Sequence[tuple[int, int]] = ((100, CARD),)
    guarantee: int = 100
    notes: Mapping[str, str] | None = None
    b: QueueSpec = msgspec.field(default_factory=lambda: queue(guarantee=100))
    c: QueueSpec = msgspec.field(default_factory=queue)
    nodes: Sequence[int] = (2,)
    goes: frozenset[str] = frozenset()
    moves: int = 0


def on(card: int, compute: int, **more: Any) -> Lies:
    """On a card of the first node."""
    return Lies(card=f"GPU-n0-{card}", compute=compute, **more)


HALVES = {"b0": on(0, 50), "b1": on(1, 50)}
LENT = {"c0": on(0, 50), "c1": on(1, 50)}

ROWS = {
    "halves inside a guarantee, and the rest is borrowed": Row(
        there=HALVES | LENT, goes=frozenset({"c0", "c1"}), moves=1
    ),
    "as much here as there": Row(
        there={"b0": on(0, 70), "b1": on(1, 30), "b2": on(1, 40), "c0": on(0, 30), "c1": on(1, 30)},
        asks=((60, 1_000),),
        guarantee=60,
        b=queue(guarantee=140),
        goes=frozenset({"c0", "c1"}),
        moves=1,
    ),
    "slivers that were spread": Row(
        there={f"b{card}": on(card, 10, more={"notes": {"placement": "spread"}}) for card in range(4)},
        nodes=(4,),
        asks=((100, CARD),) * 3,
        guarantee=300,
        b=queue(guarantee=40),
        moves=3,
    ),
    "slivers, for a pod of three cards": Row(
        there={f"b{card}": on(card, 10) for card in range(4)},
        nodes=(4,),
        asks=((300, 3 * CARD),),
        guarantee=300,
        b=queue(guarantee=40),
        moves=3,
    ),
    "one moves for one that moves": Row(
        # For 60 there is no place but where 30 lie, and for those there is one.
        there={"b0": on(0, 60), "b1": on(1, 40), "b2": on(1, 30), "b3": on(2, 70)},
        nodes=(3,),
        notes={"gpu-uuid": "GPU-n0-0"},
        b=queue(guarantee=200),
        moves=2,
    ),
    "who could go is moved so that another may": Row(
        # Of c one may go, and for b0 there is room only where the large one lies.
        there={
            "c0": on(0, 40),
            "b0": on(0, 60),
            "c1": on(1, 60),
            "b1": on(1, 40),
            "f0": on(2, 60, more={"notes": FIRM}),
        },
        nodes=(3,),
        notes={"gpu-uuid": "GPU-n0-0"},
        c=queue(guarantee=40),
        goes=frozenset({"c1"}),
        moves=2,
    ),
    "the one that has no choice takes the place of one that has": Row(
        there={
            "b0": on(0, 50),
            "b1": on(0, 30, memory=40_000),
            "b2": on(1, 50),
            "b3": on(2, 50, memory=60_000),
        },
        nodes=(3,),
        notes={"gpu-uuid": "GPU-n0-0"},
        b=queue(guarantee=180),
        moves=2,
    ),
    "nobody makes them anew": Row(
        there={uid: replace(lies, by="") for uid, lies in (HALVES | LENT).items()},
        goes=frozenset({"c0", "c1"}),
        moves=1,
    ),
    "never to be evicted": Row(there={f"f{card}": on(card, 50, more={"notes": FIRM}) for card in range(2)} | LENT),
    "of a group that would go as a whole": Row(
        there={f"b{card}": on(card, 50, more={"group": "pair", "notes": PAIR}) for card in range(2)} | LENT
    ),
    "beside what is guaranteed nothing is left": Row(there=HALVES | LENT, b=queue(guarantee=100), guarantee=50),
}


def board_of(row: Row, **more: Any) -> Board:
    """And the owner's pods wait."""
    queues = {"a": queue(guarantee=row.guarantee), "b": row.b, "c": row.c, "f": queue(guarantee=100)}
    stage = board(row.there, queues, nodes=row.nodes, **{"settings": AT_ONCE, **more})
    for number, ask in enumerate(row.asks):
        stage.submit(f"a{number}", *ask, queue="a", notes=row.notes)
    stage.run(after=1.0)
    return stage


@pytest.mark.parametrize("name", ROWS)
def test_an_owner_has_its_guarantee_in_one_piece(name: str) -> None:
    """Those go who have borrowed, and those are moved who lie in the way; in the end all run who are guaranteed."""
    row = ROWS[name]
    stage = board_of(row)
    stage.decide(after=1.0)
    assert len(stage.queues.register.refuges) == row.moves
    assert carried_out(stage, row.there) == row.goes
    comes = bool(row.moves)
    assert [bool(stage.pods[f"a{number}"].spec.node_name) for number in range(len(row.asks))] == [comes] * len(row.asks)
    assert stage.decide(after=A_WHILE) == []


def test_nobody_is_moved_before_the_owner_has_waited_a_while() -> None:
    """Where pods end within seconds its guarantee is in one piece by itself."""
    row = ROWS["slivers that were spread"]
    stage = board_of(row, settings=QueueSettings(owed=60))
    assert stage.decide(after=50.0) == []
    assert len(stage.decide(after=20.0)) == 3


def test_a_budget_of_who_lies_inside_its_guarantee_is_kept() -> None:
    """For as long as it is there: it is set aside for what is borrowed alone."""
    row = ROWS["slivers that were spread"]
    stage = board_of(row)
    mine = Budget(pods=frozenset(row.there), allowed=0, name="b/mine")
    for _ in range(100):
        assert stage.decide(budgets=[mine], after=A_WHILE) == []
    assert len(stage.decide(budgets=[replace(mine, allowed=3)], after=A_WHILE)) == 3


def test_who_is_moved_is_asked_after_those_who_go() -> None:
    """If one of those is kept, nobody was moved in vain."""
    stage = board_of(ROWS["halves inside a guarantee, and the rest is borrowed"])
    (clearing,) = stage.decide(after=1.0)
    assert [victim.queue for victim in clearing.victims] == ["c", "c", "b"]
    stage.queues.register.making_room.call_off(clearing)
    assert (len(stage.queues.register.refuges), stage.evict()) == (0, [])


def test_the_room_of_one_that_is_moved_is_kept_until_those_are_gone_who_leave_it() -> None:
    """Its controller is quicker than a borrower with minutes of grace."""
    row = ROWS["halves inside a guarantee, and the rest is borrowed"]
    slow = {"spec": {"terminationGracePeriodSeconds": 200}}
    there = {uid: replace(lies, more=slow) if uid[0] == "c" else lies for uid, lies in row.there.items()}
    stage = board_of(msgspec.structs.replace(row, there=there))
    stage.decide(after=1.0)
    (moved,) = stage.queues.register.refuges.movers()
    asked = stage.evict(grace=200.0)
    stage.gone(moved)
    again = stage.made_anew(moved, there[moved])
    for _ in range(18):
        assert stage.run(after=10.0) == []
    (waiter,) = [one for one in stage.queues.waiting() if one.uid == again]
    assert stage.queues.notice(waiter).message == "room is kept for it on n0"
    for uid in asked:
        if uid != moved:
            stage.gone(uid)
    assert set(stage.run(after=1.0)) == {"a0", again}


def test_who_is_moved_uses_what_it_has_until_it_comes_again() -> None:
    """Else another of its queue would be inside the guarantee meanwhile, and go to and fro with it."""
    row = ROWS["halves inside a guarantee, and the rest is borrowed"]
    there = {**row.there, "c2": on(2, 100, memory=CARD)}
    stage = board_of(msgspec.structs.replace(row, there=there, nodes=(3,), notes={"gpu-uuid": "GPU-n0-0"}))
    (clearing,) = stage.decide(after=1.0)
    assert len(clearing.moves) == 1
    stage.evict()
    stage.submit("b9", 50, queue="b", user="another")
    stage.run(after=1.0)
    assert stage.decide(after=A_WHILE) == []


def test_why_nobody_is_moved_is_told() -> None:
    """Pods that are never evicted lie in the way of an owner who waits."""
    stage = board_of(ROWS["never to be evicted"])
    assert stage.decide(after=1.0) == []
    (waiter,) = [one for one in stage.queues.waiting() if one.uid == "a0"]
    assert (
        "what they leave has no room for it in one piece, nor if others were moved"
        in stage.queues.notice(waiter).message
    )


def behind_many(nodes: int) -> tuple[Board, dict[str, QueueSpec]]:
    """A plan for an owner on the last two nodes, where most is lost."""
    there = {f"b{at}": Lies(card=f"GPU-n{at}-0", compute=60) for at in range(nodes - 2)}
    there |= {f"c{at}": Lies(card=f"GPU-n{at}-0", compute=30) for at in range(nodes - 2)}
    for at in (nodes - 2, nodes - 1):
        there |= {f"{whose}{at}": Lies(card=f"GPU-n{at}-0", compute=50) for whose in "bc"}
    queues = {"a": queue(guarantee=100), "b": queue(guarantee=60 * (nodes - 2) + 100), "c": queue()}
    stage = board(there, queues, nodes=(1,) * nodes, settings=AT_ONCE)
    stage.submit("a0", 100, CARD, queue="a")
    stage.run(after=1.0)
    return stage, queues


@pytest.mark.parametrize(("nodes", "looks"), [(10, 1), (30, 1), (40, 2), (80, 3), (200, 7)])
def test_a_plan_behind_many_that_come_to_nothing_is_found_in_so_many_looks(nodes: int, looks: int) -> None:
    """On all nodes but two less would be lost, and whoever had to be moved from there has no place.

    32 nodes are tried in one look, and the next goes on from there.
    """
    stage, _ = behind_many(nodes)
    for _ in range(looks - 1):
        assert stage.decide(after=A_WHILE) == []
    (clearing,) = stage.decide(after=A_WHILE)
    assert (len(clearing.victims), len(clearing.moves)) == (3, 1)


@pytest.mark.parametrize(
    ("nodes", "said"), [(80, "3 pods may be sent away for it"), (300, "nor if others were moved, as far as was looked")]
)
def test_who_asks_is_told_of_what_the_leader_finds_in_later_looks(nodes: int, said: str) -> None:
    """As many looks are taken at once; of more nodes it says that not all were looked at."""
    stage, queues = behind_many(nodes)
    standing = Standing(
        picture=stage.picture,
        plan=Plan(specs=queues, tree=plant(queues)),
        pods=stage.pods.values(),
        names=NAMES,
        wall=stage.wall,
    )
    (waiter,) = standing.waiting("a")
    assert said in Inquiry(standing, wall=stage.wall).why(waiter)


@pytest.mark.parametrize("others", [1, 2])
def test_nobody_s_dead_ends_keep_another_from_a_deep_plan(others: int) -> None:
    """Each has all tries of a look in as many looks as there are owners; on their nodes nothing can be laid anew."""
    there = {"b0": on(0, 60), "b1": on(1, 40), "b2": on(1, 30), "b3": on(2, 70)}
    there |= {
        f"b{node}{card}{half}": Lies(card=f"GPU-n{node}-{card}", compute=45)
        for node in (1, 2)
        for card in range(4)
        for half in range(2)
    }
    least = sum(lies.compute for lies in there.values())
    queues = {"a": queue(guarantee=200), "b": queue(guarantee=least), "d": queue(guarantee=100)}
    stage = board(there, queues, nodes=(3, 4, 4), settings=AT_ONCE)
    for number in range(others):
        stage.submit(f"a{number}", 100 - number, CARD, queue="a", notes={"gpu-uuid": "GPU-n[12]-*"})
    stage.submit("d0", 100, CARD, queue="d", notes={"gpu-uuid": "GPU-n0-0"})
    stage.run(after=1.0)
    found = [clearing for _ in range(others + 1) for clearing in stage.decide(after=A_WHILE)]
    assert [(clearing.uid, len(clearing.moves)) for clearing in found] == [("d0", 2)]


@pytest.mark.parametrize("nodes", [(3, 4, 4, 4, 4), (3, 8, 8), (3, 8, 8, 8, 8, 8)], ids=str)
def test_an_owners_own_dead_ends_keep_it_from_no_deep_plan(nodes: tuple[int, ...]) -> None:
    """On all nodes but the first it may lie too, and nothing can be laid anew there."""
    there = {"b0": on(0, 60), "b1": on(1, 40), "b2": on(1, 30), "b3": on(2, 70)}
    there |= {
        f"b{node}{card}{half}": Lies(card=f"GPU-n{node}-{card}", compute=45)
        for node, cards in enumerate(nodes[1:], start=1)
        for card in range(cards)
        for half in range(2)
    }
    least = sum(lies.compute for lies in there.values())
    stage = board(there, {"a": queue(guarantee=100), "b": queue(guarantee=least)}, nodes=nodes, settings=AT_ONCE)
    stage.submit("a0", 100, CARD, queue="a", notes={"gpu-uuid": "GPU-n0-0,GPU-n[1-9]-*"})
    stage.run(after=1.0)
    (clearing,) = stage.decide(after=A_WHILE)
    assert len(clearing.moves) == 2


@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 5, 6, 8, 13, 32, 36, 64])
def test_each_place_is_the_first_to_be_searched_through_in_some_look(nodes: int) -> None:
    """Else a place that leads nowhere and takes all tries would hide the others for good; whatever a look reaches."""
    places, groups = 5, nodes // NODES_AT_ONCE + 1
    for reached in (NODES_AT_ONCE, MOST_NODES):
        start, first = FIRST, set[tuple[tuple[bool, bool], int, int]]()
        for _ in range(places * groups * len(WAYS)):
            node, turn = start.of(nodes, deepest=DEPTHS[-1])
            first.add((start.ways(deepest=DEPTHS[-1])[0], turned(range(nodes), by=node)[0], turn % places))
            start = start.later(nodes=reached)
        assert first == set(product(WAYS, range(0, nodes, NODES_AT_ONCE), range(places)))


# --- any --------------------------------------------------------------------------------------------------------------

PIECES = st.sampled_from((10, 20, 30, 40, 50, 60, 80))
MEMORIES = st.sampled_from((1_000, 20_000, 40_000))


@st.composite
def worlds(draw: st.DrawFn) -> tuple[tuple[int, ...], dict[str, Lies], Ask]:
    """Full cards of pods that may be inside a guarantee or not, and what an owner asks."""
    nodes = draw(st.sampled_from([(2,), (3,), (1, 1), (2, 1), (2, 2), (4,)]))
    left = {f"GPU-n{node}-{card}": Ask(100, CARD) for node, count in enumerate(nodes) for card in range(count)}
    there = dict[str, Lies]()
    for number in range(draw(st.integers(3, 6 * len(left)))):
        card, ask = draw(st.sampled_from(sorted(left))), Ask(draw(PIECES), draw(MEMORIES))
        if left[card].compute >= ask.compute and left[card].memory >= ask.memory:
            left[card] = Ask(left[card].compute - ask.compute, left[card].memory - ask.memory)
            there[f"{draw(st.sampled_from('bbc'))}{number}"] = Lies(card=card, compute=ask.compute, memory=ask.memory)
    # A whole card is charged with all its memory.
    asks = draw(st.sampled_from([Ask(40, 20_000), Ask(60, 1_000), Ask(80, 40_000), Ask(100, CARD)]))
    return nodes, there, asks


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(worlds())
def test_whatever_can_be_laid_anew_is(world: tuple[tuple[int, ...], dict[str, Lies], Ask]) -> None:
    """A plan is found exactly where all who are guaranteed have room, and it comes true; nobody goes to and fro."""
    nodes, there, ask = world
    kept = [Ask(lies.compute, lies.memory) for uid, lies in there.items() if uid[0] == "b"]
    compute, memory = sum(one.compute for one in kept), sum(one.memory for one in kept)
    if compute + ask.compute > 100 * sum(nodes) or memory + ask.memory > CARD * sum(nodes):
        return
    queues = {
        "a": queue(guarantee=ask.compute, memory=Quota(guarantee=ask.memory)),
        "b": queue(guarantee=compute, memory=Quota(guarantee=memory)),
        "c": queue(),
    }
    stage = board(there, queues, nodes=nodes, settings=AT_ONCE)
    stage.submit("a0", *ask, queue="a")
    stage.run(after=1.0)
    can_be = fits([ask, *kept], cards=sum(nodes), memory=CARD)
    event(f"it fits: {can_be}")
    went = carried_out(stage, there)
    assert bool(stage.pods["a0"].spec.node_name) is can_be
    assert all(uid[0] == "c" for uid in went)
    assert stage.decide(after=A_WHILE) == []
