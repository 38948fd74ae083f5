"""Users, operators, nodes and time before a tree of queues, each doing as it likes; after each step all is checked.

What is checked is worked out anew from pods and specs, not read from the books that decisions are made by.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Mapping

import msgspec

from aliquot_core.claims import NOTHING, Claim, overdrawn
from aliquot_core.inventory import Gpu
from aliquot_core.objects import Pod
from aliquot_core.quantities import MiB
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import HostLimits, ModelQuota, QueueSpec, Quota
from aliquot_scheduler.queues.said.tree import ROOT
from aliquot_scheduler.queues.waiting.waiter import Waiter
from support.centre import NAMES, WALL, gpus, make_node, sick
from support.guarantee_oracle import kept_idle
from support.host_oracle import HostSums
from support.queue_count import Count
from support.queue_stage import A100, H100, Stage, queue
from support.showings_oracle import MINUTES, ShowingsOracle
from support.waiting_oracle import Emptied

# kube-scheduler's watch is behind ours by less than this, in seconds.
BEHIND = 60.0
MEMORY = 80_000
NODES = (2, 1, 4)
# The scarce ones are on the first node.
MODELS = {0: H100}
SCARCE = "*H100*"
# Of the nodes that may join, how many, and how many cards each has.
MOST_JOINED, JOINS = 2, 2
# They overlap: one takes all GPUs, one the scarce ones by another name.
PATTERNS = (SCARCE, "NVIDIA*", "*A100*", "*HBM3")
ASKED = (10, 30, 50, 60, 90, 100, 150, 200)
SETTINGS = QueueSettings(patience=100.0, hold=200.0)
replace = msgspec.structs.replace


class QueueWorld(Stage):
    """One centre's queues among all of them; `chance` decides whatever a step leaves open."""

    # Those that operators make.
    queue_names: tuple[str, ...] = ("o", "p", "a", "b", "c", "default")

    def __init__(self, *, settings: QueueSettings = SETTINGS) -> None:
        self._settings = settings
        self.chance = random.Random(0)
        self.specs: dict[str, QueueSpec] = {}
        self._gone: dict[str, QueueSpec] = {}
        self._made = 0
        self._joined = 0
        # Who is gone, and since when.
        self._past: list[tuple[Pod, float]] = []
        self.showings = ShowingsOracle()
        super().__init__({}, nodes=NODES, memory=MEMORY, models=MODELS, settings=self._settings)
        self.plant()

    # --- operators ---------------------------------------------------------------------------------------------------
    def plant(self) -> None:
        """Another tree: queues are made, deleted, moved, and their quotas changed; it may contradict itself."""
        self.specs = {name: self._spec(name) for name in self.queue_names if self.chance.random() < 0.85}
        self._gone = {}
        self.queues.queues_seen(self.specs)

    def delete_queue(self) -> None:
        """One is deleted where no webhook looks, `default` too; or comes back as it was."""
        gone, there = self._gone, self.specs
        if gone and self.chance.random() < 0.5:
            gone, there = there, gone
        if there:
            name = self.chance.choice(sorted(there))
            gone[name] = there.pop(name)
        self.queues.queues_seen(self.specs)

    def _spec(self, name: str) -> QueueSpec:
        parents = ["", "", "o", "p"] if name in "abc" else ["", "", "o"] if name == "default" else [""]
        if self.chance.random() < 0.05:
            parents = ["a", "gone"]
        spec = queue(
            self.chance.choice(parents),
            guarantee=self.chance.choice((None, None, 100, 200)),
            limit=self.chance.choice((None, None, 150, 300)),
            memory=Quota(
                guarantee=self.chance.choice((None, None, 80_000)),
                limit=self.chance.choice((None, 120_000)),
                lending_limit=self.chance.choice((None, None, None, 0)),
            ),
            lend=self.chance.choice((None, None, None, 0)),
            weight=self.chance.choice((1, 1, 2, 0)),
            priority=self.chance.choice((0, 0, 1)),
            stop=self.chance.choice(("", "", "", "", "hold", "drain")),
            autoscale=self.chance.random() < 0.3,
            autoscale_minutes=MINUTES,
            hosts=HostLimits(
                cpu=self.chance.choice((None, None, None, "3", "1500m")),
                memory=self.chance.choice((None, None, None, None, "4Gi", "2Gi")),
            ),
            models=self._of_models(),
        )
        return replace(spec, compute=replace(spec.compute, borrowing_limit=self.chance.choice((None, None, None, 100))))

    def _of_models(self) -> dict[str, ModelQuota]:
        patterns = self.chance.sample(PATTERNS, self.chance.choice((0, 0, 0, 1, 1, 2)))
        return {pattern: ModelQuota(compute=self._of_model(1), memory=self._of_model(800)) for pattern in patterns}

    def _of_model(self, unit: int) -> Quota:
        if unit > 1 and self.chance.random() < 0.5:
            # What a reservation of compute takes along.
            return Quota()
        guarantee, limit = self.chance.choice((None, None, 100, 200)), self.chance.choice((None, None, 0, 100, 200))
        return Quota(
            guarantee=None if guarantee is None else unit * guarantee,
            limit=None if limit is None else unit * limit,
            lending_limit=self.chance.choice((None, None, 0)),
            weight=self.chance.choice((1, 1, 1, 0)),
        )

    def home(self) -> None:
        """A namespace's label is changed."""
        self.queues.namespace_seen(self.chance.choice("uv"), queue=self.chance.choice(("", "a", "b", "gone")))

    # --- users -------------------------------------------------------------------------------------------------------
    def create(self) -> None:
        """One pod, of some queue or none."""
        self._made += 1
        self._create(f"x{self._made}")

    def create_gang(self) -> None:
        """Some pods of a group, maybe not all of them yet."""
        self._made += 1
        size = self.chance.choice((2, 3, 4))
        least = self.chance.choice((size, size - 1))
        notes = {"group-size": str(size), "group-min": str(least)}
        if topology := self.chance.choice(("", "", "node", "spread", "nvlink")):
            notes["group-topology"] = topology
        where, user = self.chance.choice(("a", "b", "")), self.chance.choice("uv")
        for number in range(self.chance.choice((size, size, least, 1))):
            self._create(f"g{self._made}.{number}", notes=notes, group=f"g{self._made}", where=where, user=user)

    def _create(
        self,
        uid: str,
        *,
        notes: Mapping[str, str] | None = None,
        group: str = "",
        where: str = "?",
        user: str = "",
    ) -> None:
        firm = {"preemptible": "false"} if self.chance.random() < 0.2 else {}
        model = self.chance.choice(("", "", "", "", SCARCE, f"!{SCARCE}"))
        named = {"gpu-model": model} if model else {}
        alone = self.chance.random() < 0.15
        self.submit(
            uid,
            None if alone else self.chance.choice(ASKED),
            self.chance.choice((1_000, 40_000)) if alone else self.chance.choice((1_000, 40_000, None)),
            queue=self.chance.choice(("a", "b", "c", "o", "")) if where == "?" else where,
            user=user or self.chance.choice("uv"),
            priority=self.chance.choice((0, 0, 1_000)),
            notes={**firm, **named, **(notes or {})},
            group=group,
            requests=self._of_hosts(),
        )

    def _of_hosts(self) -> dict[str, str]:
        asked = {
            "cpu": self.chance.choice(("", "", "500m", "1", "2")),
            "memory": self.chance.choice(("", "", "1Gi", "2Gi")),
        }
        return {name: amount for name, amount in asked.items() if amount}

    def delete(self) -> None:
        """A pod goes for good."""
        if uid := self.somebody():
            self.gone(uid)

    def finish(self) -> None:
        """A bound pod succeeds or fails."""
        if running := [uid for uid in sorted(self.pods) if self.pods[uid].spec.node_name]:
            uid = self.chance.choice(running)
            phase = self.chance.choice(("Succeeded", "Failed"))
            pod = self.pods[uid]
            self.see(replace(pod, status=replace(pod.status, phase=phase)))
            self.gone(uid)

    def gone(self, uid: str) -> None:
        """A pod is deleted."""
        self._past.append((self.pods[uid], self.now))
        super().gone(uid)

    def ask_for_the_gone(self) -> None:
        """kube-scheduler asks for pods after their end was told: nothing is kept for them, or charged."""
        lately = [pod for pod, since in self._past if self.now - since < BEHIND]
        for pod in self.chance.sample(lately, min(3, len(lately))):
            assert not self.desk.filter(pod, sorted(self.picture.nodes), now=self.now).nodes
            assert self.queues.books.ledger.of(pod.metadata.uid) is None
            assert pod.metadata.uid not in self.queues

    def delete_namespace(self) -> None:
        """All pods of a namespace go, and its label with it."""
        name = self.chance.choice("uv")
        for uid in sorted(self.pods):
            if self.pods[uid].metadata.namespace == name:
                self.gone(uid)
        self.queues.namespace_seen(name, queue="")

    # --- nodes and time ----------------------------------------------------------------------------------------------
    def node(self) -> None:
        """A card falls sick or recovers, a node is cordoned or opened."""
        at = self.chance.randrange(len(NODES))
        cards = self._cards_of(at)
        if self.chance.random() < 0.3:
            cards[0] = sick(cards[0])
        self.picture.node_seen(make_node(f"n{at}", cards, cordoned=self.chance.random() < 0.2))

    def join(self) -> None:
        """What an autoscaler may answer: a node more."""
        if self._joined < MOST_JOINED:
            self._joined += 1
            self._tell_joined()

    def _tell_joined(self) -> None:
        for at in range(len(NODES), len(NODES) + self._joined):
            self.picture.node_seen(make_node(f"n{at}", self._cards_of(at)))

    @staticmethod
    def _cards_of(at: int) -> list[Gpu]:
        count = NODES[at] if at < len(NODES) else JOINS
        return list(gpus(f"n{at}", count, memory=MEMORY, model=MODELS.get(at, A100)))

    def _all_cards(self) -> list[list[Gpu]]:
        return [self._cards_of(at) for at in range(len(NODES) + self._joined)]

    def wait(self) -> None:
        """Time passes, and may leap: whoever was let in and is not bound loses the turn."""
        self.now += self.chance.choice((0.5, 5.0, 31.0, 150.0, 1e6))
        self.desk.tell_time(self.now)

    def clock_back(self) -> None:
        """A clock that jumps back: nobody's usage grows by it."""
        self.now = max(0.0, self.now - 50.0)
        # By a clock that never does, of some of these nobody knows any more.
        self._past.clear()

    # --- the centre --------------------------------------------------------------------------------------------------
    def let_in(self) -> None:
        """A round of turns, each checked as it is given; most are bound."""
        self.beat()
        self._rejoin()
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

    def restart(self) -> None:
        """Another leader begins, with nothing but what the API server has."""
        pods = list(self.pods.values())
        # The one before may have died between deciding and lifting the gate.
        lifted = {uid for uid in sorted(self.pods) if self.is_coming(uid) and self.chance.random() < 0.7}
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
            self.see(self._lifted(pod, by=charged[uid]) if uid in lifted else pod)
        assert all(self.queues.charged_in(uid) == charged[uid] for uid in bound)
        self.queues.overdue(now)
        for uid in lifted:
            self.queues.why_not(self.pods[uid])
            assert self.queues.charged_in(uid) in ("", charged[uid])
        self.showings.led_anew(self)

    @staticmethod
    def _lifted(pod: Pod, *, by: str) -> Pod:
        notes = pod.metadata.annotations | ({NAMES.charged: by} if by else {})
        meta = replace(pod.metadata, annotations=notes)
        return replace(pod, metadata=meta, spec=replace(pod.spec, scheduling_gates=[]))

    def is_coming(self, uid: str) -> bool:
        """Whether a pod is let in and not bound."""
        return any(waiter.uid == uid for waiter in self.queues.under_way())

    def somebody(self) -> str:
        """Any pod that there is."""
        return self.chance.choice(sorted(self.pods)) if self.pods else ""

    # --- what must hold ----------------------------------------------------------------------------------------------
    def check(self) -> None:
        """After each step."""
        self._check_cards()
        self._check_books()
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
        tree = emptied.tree
        # A gang that is not there.
        if not (start := self._start(waiter)) or not emptied.has_room(start):
            return True
        if not HostSums(self).may_have(waiter.queue, [one.pod for one in start]):
            return True
        # Of which models some of a group are kept off by their queue, so that all have room, is not all tried.
        # Nor where others keep some of a model idle.
        said = any(tree.nodes[name].spec.models for name in tree.path(waiter.queue))
        kept = any(any(node.kept[2 : tree.dimensions.cards]) for node in tree.nodes.values())
        return waiter.group is not None and (said or kept)

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
