"""Users, operators, nodes and time before a tree of queues, each doing as it likes."""

from __future__ import annotations

import random
from collections.abc import Mapping

import msgspec

from aliquot_core.inventory import Gpu
from aliquot_core.objects import Pod
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import HostLimits, ModelQuota, QueueSpec, Quota
from support.centre import gpus, make_node, sick
from support.queue_stage import A100, H100, Stage, queue
from support.showings_oracle import MINUTES

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


class QueueActors(Stage):
    """One centre's queues, and who does something to them; `chance` decides whatever a step leaves open."""

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

    def somebody(self) -> str:
        """Any pod that there is."""
        return self.chance.choice(sorted(self.pods)) if self.pods else ""

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
