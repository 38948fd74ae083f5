"""Users, operators, nodes and time before a tree of queues, each doing as it likes; after each step all is checked.

What is checked is worked out anew from pods and specs, not read from the books that decisions are made by.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import msgspec

from aliquot_core.claims import NOTHING, Claim, overdrawn
from aliquot_core.objects import Pod
from aliquot_core.quantities import MiB
from aliquot_scheduler.deciding.promises import Promise
from aliquot_scheduler.deciding.turns import Turn
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.tree import ROOT
from aliquot_scheduler.queues.waiting.waiter import Waiter
from support.centre import NAMES, WALL, make_node
from support.guarantee_oracle import kept_idle
from support.host_oracle import HostSums
from support.lying_together import check_together
from support.queue_actors import MEMORY, MODELS, NODES, SETTINGS, QueueActors
from support.queue_count import Count
from support.queue_stage import Stage
from support.showings_oracle import ShowingsOracle
from support.waiting_oracle import Emptied

replace = msgspec.structs.replace


class QueueWorld(QueueActors):
    """One centre's queues among all of them, each of its answers checked."""

    def __init__(self, *, settings: QueueSettings = SETTINGS) -> None:
        self.showings = ShowingsOracle(patience=settings.patience)
        super().__init__(settings=settings)

    # --- the centre --------------------------------------------------------------------------------------------------
    def let_in(self) -> None:
        """A round of turns, each checked as it is given; most are bound."""
        self.beat()
        self._rejoin()
        # What the leader before has promised is not free: any question of kube-scheduler's would have it kept first.
        self.queues.take_over(self.desk, now=self.now)
        self.showings.tell_time(self.now)
        before, hosts = Count(self), HostSums(self)
        told: set[str] = set()
        for turn in self.queues.turns(self.desk, now=self.now):
            uid = turn.pod.metadata.uid
            self.turns[uid] = turn
            after = Count(self)
            before.check_limits(after, self.queues.books.ledger.charges())
            hosts.check_next(hosts := HostSums(self))
            # Who is shown has no card, so it takes nothing from anybody.
            if turn.promise:
                told.add(uid)
                before.check_next(after)
            before = after
        self.check_gangs(told)
        self._show()
        for uid in self.with_room():
            if self.chance.random() < 0.8:
                self._bind_checked(uid)

    def _bind_found(self, uid: str) -> None:
        """kube-scheduler asks for one that the leader before has let in, and binds it to any node that it is told."""
        names = sorted(self.picture.nodes)
        nodes = self.desk.filter(self.pods[uid], names, now=self.now).nodes
        if nodes and self.chance.random() < 0.5:
            # Something else of that node forbade it.
            nodes = self.desk.filter(self.pods[uid], names, now=self.now).nodes
        if nodes:
            promise = self.desk.begin_bind(uid=uid, node=self.chance.choice(nodes), now=self.now)
            assert isinstance(promise, Promise), promise
            self.turns[uid] = Turn(pod=self.pods[uid], promise=promise, number=1)
            self._bind_checked(uid)

    def let_in_badly(self) -> None:
        """A round of turns of which every other can't be written: nobody is told of it, and it comes again."""
        self.beat()
        for turn in list(self.queues.turns(self.desk, now=self.now)):
            uid = turn.pod.metadata.uid
            self.turns[uid] = turn
            if turn.promise and self.chance.random() < 0.5:
                self.desk.take_back(uid)
                self.queues.not_told(self.pods[uid], now=self.now)
        self._show()

    def _show(self) -> None:
        """Most gates of those who are shown are lifted; of the others the write has failed."""
        for uid, turn in self.turns.items():
            if turn.shown and uid in self.pods and self.showings.is_new(turn):
                assert not self.is_coming(uid)
                self.showings.told(self, turn)
        self.showings.check_new(self)
        self.showings.check_looked(self)
        for uid in sorted(self.showings.new):
            if self.chance.random() < 0.9:
                self.lift(uid)
            else:
                self.showings.forget(self, uid)
                self.queues.not_told(self.pods[uid], now=self.now)
        self.showings.new.clear()

    def with_room(self) -> list[str]:
        """Who is let in and can be bound."""
        return [uid for uid, turn in self.turns.items() if uid in self.pods and self.is_coming(uid) and turn.promise]

    def _bind_checked(self, uid: str) -> None:
        accounts = self.queues.books.ledger.accounts
        before = {name: list(account.used) for name, account in accounts.items()}
        self.bind(uid)
        for name, account in accounts.items():
            assert all(now <= was for now, was in zip(account.used, before[name], strict=True)), (
                "it was charged with the most that it may come to"
            )

    def _rejoin(self) -> None:
        """Whoever asks again from this round on does so before it is counted: that is nobody's fault who is let in."""
        register = self.queues.register
        register.tell_time(self.now)
        for clearing in (clearings := register.clearings):
            closely = clearings.is_free(clearing, now=self.now)
            if clearings.why_void(clearing, now=self.now) or register.making_room.why_unwanted(
                clearing, closely=closely
            ):
                register.making_room.call_off(clearing)

    def die_at_turns(self) -> None:
        """A round of turns, and before anybody is bound another leader begins, while a node may change."""
        self.beat()
        self.turns |= {turn.pod.metadata.uid: turn for turn in self.queues.turns(self.desk, now=self.now)}
        self._show()
        self.restart()
        if self.chance.random() < 0.3:
            self.node()
        self.let_in()
        for waiter in self.queues.under_way():
            if waiter.uid not in self.turns and self.chance.random() < 0.8:
                self._bind_found(waiter.uid)

    def restart(self) -> None:
        """Another leader begins, with nothing but what the API server has."""
        pods = list(self.pods.values())
        # The one before may have died between deciding and lifting the gate.
        lifted = {uid for uid in sorted(self.pods) if self.is_coming(uid) and self.chance.random() < 0.7}
        promised = {promise.pod.metadata.uid: promise for promise in self.desk.promises}
        now, specs = self.now, self.specs
        # Without queues nothing is said of them.
        charged = {uid: self.queues.charged_in(uid) for uid in self.pods}
        bound = [uid for uid, pod in self.pods.items() if pod.spec.node_name]
        Stage.__init__(self, {}, nodes=NODES, memory=MEMORY, models=MODELS, settings=self._settings)
        self.now = now
        # Nobody told it of them.
        self._past.clear()
        self._tell_joined()
        self.desk.tell_time(now)
        self.queues.recall({}, wall=WALL + now, now=now)
        self.specs = specs
        self.queues.queues_seen(specs)
        self.chance.shuffle(pods)
        for pod in pods:
            uid = pod.metadata.uid
            self.see(self._lifted(pod, by=charged[uid], promise=promised.get(uid)) if uid in lifted else pod)
        assert all(self.queues.charged_in(uid) == charged[uid] for uid in bound)
        self.queues.overdue(now)
        for uid in lifted:
            self.queues.why_not(self.pods[uid])
            assert self.queues.charged_in(uid) in ("", charged[uid])
        self.showings.led_anew(self)

    @staticmethod
    def _lifted(pod: Pod, *, by: str, promise: Promise | None) -> Pod:
        notes = pod.metadata.annotations | ({NAMES.charged: by} if by else {})
        if promise:
            notes |= {NAMES.promised: " ".join((promise.node, *promise.plan.claims))}
        meta = replace(pod.metadata, annotations=notes)
        return replace(pod, metadata=meta, spec=replace(pod.spec, scheduling_gates=[]))

    def is_coming(self, uid: str) -> bool:
        """Whether a pod is let in and not bound."""
        return any(waiter.uid == uid for waiter in self.queues.under_way())

    # --- what must hold ----------------------------------------------------------------------------------------------
    def check(self) -> None:
        """After each step."""
        self._check_cards()
        self._check_books()
        check_together(self)
        self.showings.check(self)

    def _check_cards(self) -> None:
        on: dict[tuple[str, str], list[Claim]] = defaultdict(list)
        for held in self.picture.holdings.everything().values():
            for gpu, claim in held.items():
                on[gpu].append(claim)
        for gpu, parts in on.items():
            total = NOTHING
            for part in parts:
                total = total.beside(part)
            assert overdrawn(total, memory=MiB(MEMORY), holders=len(parts)) is None, gpu

    def _check_books(self) -> None:
        ledger, waiting = self.queues.books.ledger, self.queues.waiting()
        inside = {uid for uid, pod in self.pods.items() if pod.spec.node_name and not pod.ended}
        inside |= {waiter.uid for waiter in self.queues.under_way()}
        assert ledger.charges().keys() == inside
        assert not inside & {waiter.uid for waiter in waiting}
        counted = Count(self)
        for name, account in ledger.accounts.items():
            assert account.used == counted.used[name], name
            assert account.asked == counted.asked[name], name
        for dimension in range(ledger.tree.dimensions.cards):
            assert ledger.held_back(dimension) == counted.guarantees(dimension).served(plenty=True)
            used = {name: amounts[dimension] for name, amounts in counted.used.items()}
            assert ledger.accounts[ROOT].idle[dimension] == kept_idle(ledger.tree, dimension=dimension, used=used)

    def check_gangs(self, told: set[str]) -> None:
        """A gang of which somebody was let in has its minimum now."""
        for gang, uids in self.queues.books.let_in.items():
            if uids & told:
                group = next(pod for pod in self.pods.values() if pod.metadata.uid in uids)
                least = int(group.metadata.annotations[NAMES.group_min])
                assert len(uids) >= least, gang

    def check_to_the_end(self) -> None:
        """Whoever may ever be let in is, once those before have ended."""
        for at, cards in enumerate(self._all_cards()):
            self.picture.node_seen(make_node(f"n{at}", cards))
        for _ in range(4 * len(self.pods) + 10):
            self.now += self.chance.uniform(301.0, 601.0)
            self.desk.tell_time(self.now)
            self.round()
            self.bind(*self.with_room())
            self.end(*[uid for uid in sorted(self.pods) if self.pods[uid].spec.node_name])
        emptied = Emptied(
            tree=self.queues.books.ledger.tree, capacity=self.queues.stock().capacity, nodes=self._all_cards()
        )
        for waiter in self.queues.waiting():
            assert self._waits_rightly(waiter, emptied), (waiter, self.queues.notice(waiter))

    def _waits_rightly(self, waiter: Waiter, emptied: Emptied) -> bool:
        # A gang that is not there.
        if not (start := self._start(waiter)) or not emptied.has_room(start):
            return True
        return not HostSums(self).may_have(waiter.queue, [one.pod for one in start])

    def _start(self, waiter: Waiter) -> list[Waiter]:
        """Those who are let in at once with it; nobody if they are too few."""
        if waiter.group is None:
            return [waiter]
        who = waiter.gang, waiter.queue, waiter.user
        line = (one for one in self.queues.waiting() if self.queues.is_in_line(one.uid))
        mates = sorted((one for one in line if (one.gang, one.queue, one.user) == who), key=lambda one: one.place)
        needed = max(
            1, waiter.group.minimum - len(self.queues.books.let_in.get(waiter.gang or ("", "", 0, 0, "", ""), ()))
        )
        return mates[:needed] if len(mates) >= needed else []


STEPS: dict[Callable[[QueueWorld], None], int] = {
    QueueWorld.create: 8,
    QueueWorld.create_gang: 3,
    QueueWorld.let_in: 9,
    QueueWorld.finish: 5,
    QueueWorld.wait: 4,
    QueueWorld.delete: 2,
    QueueWorld.plant: 1,
    QueueWorld.delete_queue: 1,
    QueueWorld.home: 1,
    QueueWorld.node: 1,
    QueueWorld.join: 1,
    QueueWorld.restart: 1,
    QueueWorld.clock_back: 1,
    QueueWorld.delete_namespace: 1,
    QueueWorld.ask_for_the_gone: 2,
}
