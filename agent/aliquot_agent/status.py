"""What the agent says of itself over HTTP: `/metrics`, `/healthz`, `/readyz`. The shell round `figures` and `metrics`.

What changes at any time is put together at a scrape, from what is known anyhow. What is said of slices changes with a
sample only, and takes a full node tens of milliseconds to work out: a thread does that, once a sample.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

from prometheus_client.process_collector import ProcessCollector

from aliquot_agent.health.inventories import verdict
from aliquot_agent.isolation.beyond import Owner, Whose
from aliquot_agent.node_agent import NodeAgent
from aliquot_agent.pods.residents import Register
from aliquot_agent.web.accounting import Accounting, Told, snapshot
from aliquot_agent.web.accounts import SliceUse
from aliquot_agent.web.exposition import CONTENT_TYPE, write
from aliquot_agent.web.figures import Figures, Sampled
from aliquot_agent.web.http_server import Answer, Page
from aliquot_agent.web.metrics import FiguresCollector
from aliquot_agent.web.readiness import Condition, page, waits_for
from aliquot_core.clock import Clock
from aliquot_core.names import Names

# The signal tells of every sample; without any, pods and grants change all the same.
LOOK_AGAIN = 60.0


# Takes in what slices use; says who made accounts larger since the last time.
Heard = Callable[[Sequence[SliceUse]], Collection[Owner]]


def nobody_hears(_: Sequence[SliceUse]) -> Collection[Owner]:
    """On a node that only watches."""
    return ()


class Status:
    """One agent's pages."""

    def __init__(
        self,
        *,
        node: NodeAgent,
        register: Register,
        names: Names,
        clock: Clock,
        version: str,
        heard: Heard = nobody_hears,
        pacing_faults: Callable[[], Mapping[str, int]] = dict,
        unpaid: Callable[[], Mapping[Whose, int]] = dict,
    ) -> None:
        """`register` knows where processes live; `heard` takes in what slices use; `pacing_faults` are by kind.

        `unpaid` is how many launches of each slice passed unpaid.
        """
        self._pacing_faults = pacing_faults
        self._unpaid = unpaid
        self._heard = heard
        self._heard_at: float | None = None
        self._node = node
        self._clock = clock
        self._version = version
        self._resources = (names.compute, names.best_effort)
        self._accounting = Accounting(register=register, grant=names.grant)
        self._told = Told()
        self._process = ProcessCollector(registry=None)
        self._accountant = ThreadPoolExecutor(max_workers=1, thread_name_prefix="accounts")

    @property
    def pages(self) -> Mapping[str, Page]:
        """By path."""
        return {"/metrics": self.metrics, "/healthz": self.healthz, "/readyz": self.readyz}

    async def run(self) -> None:
        """Put each sample to the accounts of slices, until cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                known = snapshot(await self._node.starter.known())
                sample = self._node.usage.sample
                self._told = await loop.run_in_executor(self._accountant, self._accounting.account, known, sample)
                self._hear(self._told.sampled)
                await self._node.usage.changed.wait(clock=self._clock, at_most=LOOK_AGAIN)
        finally:
            self._accountant.shutdown(wait=False)

    def _hear(self, sampled: Sampled) -> None:
        """Hand each sample on once, if it is known who holds what."""
        if sampled.claims is not None and sampled.at != self._heard_at:
            self._heard_at = sampled.at
            filling = self._heard(sampled.accounts.slices)
            self._node.over_use.hear(sampled.accounts.slices, filling=filling)
            self._node.trespassers.hear(sampled.accounts.trespassers)
            self._node.live_limits.hear(
                sampled.accounts.slices, usages=sampled.usages, facts=self._node.gpus.cards.gpus
            )

    async def metrics(self) -> Answer:
        """Everything, for Prometheus."""
        now = write(chain(FiguresCollector(self.figures()).collect(), self._process.collect()))
        return Answer(body=now + self._told.slices, content_type=CONTENT_TYPE)

    async def healthz(self) -> Answer:
        """Whether the agent should be let alone; what it waits for is no reason to kill it."""
        silent = self._node.pulse.silent()
        told = "".join(f"no {name}: silent for {seconds:.0f} s\n" for name, seconds in silent.items())
        return Answer(status=503 if silent else 200, body=(told or "ok\n").encode())

    async def readyz(self) -> Answer:
        """Whether pods can start here, and if not, what is missing."""
        cards = self._node.gpus.cards
        found = waits_for(
            Condition(
                at_door=self._node.door.connected,
                kubelet=self._node.door.kubelet,
                resources=self._resources,
                pods=self._node.mirrors["pods"],
                driver=cards.driver is not None,
                trouble=cards.problem,
            )
        )
        return Answer(status=503 if any(found.values()) else 200, body=page(found).encode())

    def figures(self) -> Figures:
        """All that is known now."""
        node = self._node
        cards = node.gpus.cards
        age = node.heartbeat_age
        return Figures(
            node=node.name,
            version=self._version,
            inventory=node.gpus.inventory,
            facts=cards.gpus,
            verdicts={uuid: verdict(facts, cards=cards) for uuid, facts in cards.gpus.items()},
            trouble=cards.kind,
            xids=dict(node.gpus.xids),
            sampled=self._told.sampled,
            over_use=self._node.over_use.rungs,
            allowed=self._node.live_limits.allowed,
            lacks=self._node.live_limits.lacks,
            unpaid=self._unpaid(),
            pacing_faults=dict(self._pacing_faults()),
            calls=node.calls.so_far(),
            at_door=node.door.connected,
            kubelet=node.door.kubelet,
            resources=self._resources,
            mirrors=node.mirrors,
            heartbeat_at=None if age is None else self._clock.wall() - age,
        )
