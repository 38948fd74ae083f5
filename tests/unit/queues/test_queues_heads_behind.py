"""Who stands behind whom is kept from sweep to sweep: it is what asking all of them anew would tell."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import msgspec
import pytest

from aliquot_core.objects import Pod
from aliquot_scheduler.deciding.promises import PROMISE
from aliquot_scheduler.queues.judging.rules import no_room
from aliquot_scheduler.queues.letting_in.register import Register
from aliquot_scheduler.queues.letting_in.standing_behind import Firsts, StandingBehind
from aliquot_scheduler.queues.letting_in.sweep_memory import SweepMemory
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.waiting.hall import Hall
from aliquot_scheduler.queues.waiting.waiter import Candidate, Waiter
from support.centre import gpus, make_node
from support.queue_stage import Stage, queue

SETTINGS = QueueSettings(patience=3.0, hold=15.0)
OPEN = {"a": queue(), "b": queue()}
HELD = OPEN | {"a": queue(stop="hold")}


class Told:
    """What would be told the memory, which is left as it is."""

    def __init__(self, memory: SweepMemory) -> None:
        self.patience, self.owed = memory.patience, memory.owed
        self.firsts: Firsts = {}

    def stand_behind(self, firsts: Firsts) -> None:
        """It is put down."""
        self.firsts = dict(firsts)


class Walk:
    """Two users of two queues before two full GPUs: few shapes, so that many ask the same."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.stage = Stage(OPEN, nodes=(2,), settings=SETTINGS)
        for number in range(2):
            self.stage.submit(f"full{number}", 100, queue="b")
        assert len(self.stage.run()) == 2
        register = self.stage.queues.register
        self.told = Told(register.memory)
        self.kept = self._standing_behind()
        self._made = 0

    def _standing_behind(self) -> StandingBehind:
        register = self.stage.queues.register
        memory: Any = self.told
        return StandingBehind(memory=memory, hall=register.hall, books=register.books)

    def events(self, number: int) -> Iterator[Firsts]:
        """After each who stands behind whom by what is kept, if that is what asking anew tells as well."""
        for _ in range(number):
            events, weights = (self._come, self._go, self._change, self._edit), (10, 2, 3, 1)
            self.chance.choices(events, weights)[0]()
            self.stage.round(after=1.0)
            shown = [one.uid for one in self.stage.queues.waiting() if one.uid.endswith("0")]
            found = [self._told(one, shown) for one in (self.kept, self._standing_behind())]
            assert found[0] == found[1]
            yield found[0]

    def _told(self, standing_behind: StandingBehind, shown: list[str]) -> Firsts:
        standing_behind.line_up(shown=shown, now=self.stage.now)
        return self.told.firsts

    def _come(self) -> None:
        chance, self._made = self.chance, self._made + 1
        group = chance.choice(("", "", "", "g", "h"))
        self.stage.submit(
            f"p{self._made}",
            chance.choice((100, 50)),
            queue=chance.choice(("a", "b")),
            user=chance.choice(("eve", "ann")),
            priority=self._made if chance.random() < 0.7 else 0,
            group=group,
            notes={"group-size": "2"} if group else {},
        )

    def _go(self) -> None:
        if waiting := self._waiting():
            self.stage.gone(self.chance.choice(waiting).uid)

    def _change(self) -> None:
        if waiting := self._waiting():
            pod = self.chance.choice(waiting).pod
            priority = pod.spec.priority + self.chance.choice((-5, 5))
            self.stage.see(msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, priority=priority)))

    def _edit(self) -> None:
        self.stage.queues.queues_seen(self.chance.choice((OPEN, HELD)))

    def _waiting(self) -> list[Waiter]:
        return sorted(self.stage.queues.waiting(), key=lambda one: one.uid)


@pytest.mark.parametrize("seed", range(1, 7))
def test_what_is_kept_is_what_asking_anew_tells(seed: int) -> None:
    """Whoever comes, goes, or changes places, and whatever queues are held meanwhile; and many stand behind."""
    told = list(Walk(seed).events(80))
    assert max(sum(first is not None for first in firsts.values()) for firsts in told) > 2
    assert max(sum(first is None for first in firsts.values()) for firsts in told) > 2


def test_only_of_users_whose_line_has_changed_anybody_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a thousand heads behind one cost each event their number of looks."""
    stage, asked = Stage(OPEN, nodes=(1,), settings=SETTINGS), list[str]()
    stage.submit("full", 100, queue="b")
    assert stage.run() == ["full"]
    for number in range(10):
        stage.submit(f"p{number}", 100, queue="a", priority=number)
        assert stage.round() == []
    stage.round(after=5.0)
    stands = Hall.standing

    def counted(self: Hall, uid: str) -> Waiter | None:
        asked.append(uid)
        return stands(self, uid)

    register = stage.queues.register
    monkeypatch.setattr(Hall, "standing", counted)
    stage.submit("other", 100, queue="a", user="zeta")
    assert lined_up(register, asked) == []
    stage.gone("p9")
    assert lined_up(register, asked) == [f"p{number}" for number in range(9)]


def lined_up(register: Register, asked: list[str]) -> list[str]:
    """Who is looked at for that."""
    asked.clear()
    register.line_up(now=register.now)
    return sorted(asked)


def test_a_group_that_can_start_no_more_stands_behind_nobody() -> None:
    """Hardware has gone, and its user's candidates are the same as before."""
    stage, group = Stage(OPEN, nodes=(2,), settings=SETTINGS), {"gpus": "1", "group-size": "2"}
    for uid in ("full", "other"):
        stage.submit(uid, 100, queue="b")
    assert stage.run() == ["full", "other"]
    for uid in ("head", "mate"):
        stage.submit(uid, 100, queue="a", notes=group, group="g")
    assert stage.round() == []
    assert stage.round(after=5.0) == []
    register = stage.queues.register
    heads = register.hall.lines["a"].heads("team", runs=register.books.runs)
    assert register.memory.patience.impatient(now=stage.now) == {"head"}
    stage.picture.node_seen(make_node("n0", gpus("n0", 1)))
    assert stage.round() == []
    assert register.hall.lines["a"].heads("team", runs=register.books.runs) is heads
    assert register.memory.patience.impatient(now=stage.now) == set()


def memory_of_two() -> tuple[SweepMemory, Candidate]:
    """A head that has lost patience, and who comes in before it."""
    stage = Stage(OPEN, nodes=(1,), settings=SETTINGS)
    for uid in ("head", "first"):
        stage.submit(uid, 100, queue="a", priority=int(uid == "first"))
    register = stage.queues.register
    register.memory.head_refused("head", now=0.0)
    (first,) = register.hall.lines["a"].heads("team", runs=register.books.runs)
    return register.memory, first


def test_who_stands_behind_is_owed_nothing_and_closes_no_queue() -> None:
    """Even where no node was kept for it: its guarantee is owed to who comes in before it."""
    memory, first = memory_of_two()
    memory.owe("head", now=4.0)
    memory.stand_behind({"head": first})
    assert memory.owed(now=4.0) == {"first"}
    head = Candidate(members=(msgspec.structs.replace(first.first, pod=renamed(first, "head")),), amounts=first.amounts)
    memory.looks.looked_at(head, no_room(""), now=4.0, closes=True)
    memory.stand_behind({"head": first})
    assert memory.looks.closing() == set()


def renamed(one: Candidate, uid: str) -> Pod:
    """Its pod with another UID."""
    pod = one.first.pod
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, uid=uid))


def test_who_handed_back_what_it_took_over_hands_back_nothing_of_its_own_later() -> None:
    """Though it had nothing any more when nobody was asked of it."""
    memory, first = memory_of_two()
    memory.keep("head", ("n0",))
    memory.stand_behind({"head": first})
    assert memory.kept(now=4.0) == {"first": ("n0",)}
    memory.keep_nothing("first")
    memory.stand_behind({"first": None})
    memory.keep("first", ("n1",))
    memory.forget("first")
    assert memory.kept(now=4.0) == {}


def owed_and_kept(memory: SweepMemory, *, now: float) -> tuple[set[str], dict[str, tuple[str, ...]]]:
    """To whom a guarantee is owed, and which nodes are kept for whom."""
    return set(memory.owed(now=now)), dict(memory.kept(now=now))


def test_an_owed_guarantee_is_the_others_again_only_if_the_first_does_not_come_in() -> None:
    """Though that one had a node of its own, which the other has then."""
    ends: dict[str, Callable[[SweepMemory], None]] = {
        "gone": lambda memory: memory.forget("first"),
        "not asked": lambda memory: memory.stand_behind({"first": None}),
        "let in": lambda memory: memory.let_in("first"),
    }
    left = {}
    for name, end in ends.items():
        memory, first = memory_of_two()
        memory.keep("first", ("n1",))
        memory.owe("head", now=1.0)
        memory.keep("head", ("n0",))
        memory.stand_behind({"head": first})
        assert owed_and_kept(memory, now=1.0) == ({"first"}, {"first": ("n1",)})
        end(memory)
        left[name] = owed_and_kept(memory, now=1.0)
    again = {"head"}, {"head": ("n1",)}
    assert left == {"gone": again, "not asked": again, "let in": (set(), {})}


def test_who_comes_before_an_owed_head_has_its_node_where_another_user_is_first_of_the_line() -> None:
    """Else nobody is owed anything any more, and who borrows takes the node."""
    stage = Stage({"own": queue(guarantee=600), "b": queue()}, nodes=(4, 4, 4, 1))
    for node, cards in {"n0": (3,), "n1": (0, 1, 2), "n2": (0, 1)}.items():
        for card in cards:
            stage.submit(f"{node}-{card}", 100, queue="b", notes={"gpu-uuid": f"GPU-{node}-{card}"})
    stage.submit("mine", 100, queue="own", notes={"gpu-uuid": "GPU-n3-0"})
    stage.run()
    stage.submit("head", 400, queue="own", notes={"gpus": "4"})
    stage.run()
    stage.run(after=70.0)
    memory = stage.queues.register.memory
    assert owed_and_kept(memory, now=stage.now) == ({"head"}, {"head": ("n0",)})
    stage.submit("other", 100, queue="own", user="ann", notes={"gpu-uuid": "GPU-n1-0"})
    stage.run(after=1.0)
    stage.submit("first", 400, queue="own", notes={"gpus": "4"}, priority=5)
    stage.submit("borrows", 100, queue="b", notes={"gpu-uuid": "GPU-n0-0"})
    assert stage.run(after=1.0) == []
    assert owed_and_kept(memory, now=stage.now) == ({"first"}, {"first": ("n0",)})
    stage.end("n0-3")
    assert stage.run(after=1.0) == ["first"]
    assert memory.owed(now=stage.now) == set()


def test_no_node_idles_for_who_stands_behind_one_to_whom_the_line_is_closed() -> None:
    """Its user is in doubt and has a pod under way, so that of the others of that shape the first may not come."""
    stage = Stage(OPEN, nodes=(4, 4), settings=QueueSettings(patience=10.0, hold=1_000.0))
    stage.submit("head", 400, queue="a", notes={"gpus": "4"})
    assert stage.round() == ["head"]
    for card in range(8):
        stage.submit(f"b{card}", 100, queue="b")
    stage.run()
    assert stage.run(after=PROMISE + 1.0) != []
    while not stage.queues.is_in_line("head"):
        stage.run(after=5.0)
    stage.run(after=20.0)
    stage.run(after=1.0)
    memory = stage.queues.register.memory
    ((head, (node,)),) = memory.kept(now=stage.now).items()
    assert head == "head"
    other = next(uid for uid in sorted(stage.pods) if uid.startswith("b") and node_of(stage, uid) != node)
    stage.end(other)
    stage.submit("little", 10, queue="a")
    assert stage.round(after=1.0) == ["little"]
    stage.submit("first", 400, queue="a", notes={"gpus": "4"})
    stage.round(after=1.0)
    stage.end(*[uid for uid in sorted(stage.pods) if uid.startswith("b") and node_of(stage, uid) == node])
    stage.submit("small", 100, queue="b", notes={"gpu-uuid": f"GPU-{node}-0"})
    assert stage.round(after=1.0) == ["small"]
    stage.bind("little", "small")
    assert stage.round(after=1.0) == []
    assert list(memory.kept(now=stage.now)) == ["first"]


def node_of(stage: Stage, uid: str) -> str:
    """Where it lies."""
    return stage.pods[uid].spec.node_name
