"""What the agent says of itself over HTTP: `/metrics`, `/healthz`, `/readyz`. The shell round `figures` and `metrics`.

All is put together on the loop, from what is known anyhow; writing it down takes milliseconds, so a thread does that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

from prometheus_client.process_collector import ProcessCollector

from aliquot_agent.node_agent import NodeAgent
from aliquot_agent.pods.residents import Register
from aliquot_agent.starting.decision import Known
from aliquot_agent.starting.drift import Drift, drifts
from aliquot_agent.starting.room import in_force, totals
from aliquot_agent.web.accounts import Tenant, accounts
from aliquot_agent.web.exposition import CONTENT_TYPE, write
from aliquot_agent.web.figures import Figures, Sampled
from aliquot_agent.web.http_server import Answer, Page
from aliquot_agent.web.metrics import FiguresCollector
from aliquot_agent.web.readiness import Condition, page, waits_for
from aliquot_core.clock import Clock
from aliquot_core.grant import GrantError, decode_grant
from aliquot_core.names import Names
from aliquot_core.objects import Pod

log = logging.getLogger(__name__)

# The signal tells of every sample; without any, pods and grants change all the same.
LOOK_AGAIN = 60.0


class Status:
    """One agent's pages."""

    def __init__(self, *, node: NodeAgent, register: Register, names: Names, clock: Clock, version: str) -> None:
        """`register` knows where processes live."""
        self._node = node
        self._register = register
        self._clock = clock
        self._version = version
        self._resources = (names.compute, names.best_effort)
        self._grant = names.grant
        self._sampled = Sampled()
        self._suspected: frozenset[Drift] = frozenset()
        self._process = ProcessCollector(registry=None)
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metrics")

    @property
    def pages(self) -> Mapping[str, Page]:
        """By path."""
        return {"/metrics": self.metrics, "/healthz": self.healthz, "/readyz": self.readyz}

    async def run(self) -> None:
        """Put each sample to the accounts of slices, until cancelled."""
        try:
            while True:
                self._sampled = self._account(await self._node.starter.known())
                await self._node.usage.changed.wait(clock=self._clock, at_most=LOOK_AGAIN)
        finally:
            self._writer.shutdown(wait=False)

    async def metrics(self) -> Answer:
        """Everything, for Prometheus."""
        figures = self.figures()
        body = await asyncio.get_running_loop().run_in_executor(self._writer, self._write, figures)
        return Answer(body=body, content_type=CONTENT_TYPE)

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
            verdicts={uuid: cards.book.of(uuid) for uuid in cards.gpus},
            trouble=cards.kind,
            xids=dict(node.gpus.xids),
            sampled=self._sampled,
            calls=node.calls.so_far(),
            at_door=node.door.connected,
            kubelet=node.door.kubelet,
            resources=self._resources,
            mirrors=node.mirrors,
            heartbeat_at=None if age is None else self._clock.wall() - age,
        )

    def _write(self, figures: Figures) -> bytes:
        return write(chain(FiguresCollector(figures).collect(), self._process.collect()))

    def _tenant(self, pod: Pod | None) -> Tenant | None:
        """A pod with its grant; none where only what it started with is left, or its grant was spoilt since."""
        if pod is None or pod.ended:
            return None
        try:
            return Tenant(pod=pod, grant=decode_grant(pod.metadata.annotations.get(self._grant, "")))
        except GrantError:
            return None

    def _account(self, known: Known) -> Sampled:
        sample = self._node.usage.sample
        if not known.complete or (known.recorded is None and not known.listed):
            # Who holds what is not known: the GPUs are told of, and no slices.
            return Sampled(at=sample.at, usages={usage.uuid: usage for usage in sample.usages})
        held = dict(in_force(known))
        tenants = {uid: one for uid in held if (one := self._tenant(known.pods.get(uid))) is not None}
        pids = {process.pid for usage in sample.usages for process in usage.processes}
        found = accounts(
            usages=sample.usages,
            dwellings=self._register.dwellings(pids),
            tenants=tenants,
            standing={uid: known.standing[uid] for uid in held.keys() & known.standing.keys() - tenants.keys()},
        )
        return Sampled(
            at=sample.at,
            usages={usage.uuid: usage for usage in sample.usages},
            accounts=found,
            claims=totals(held.values()),
            drifts=self._lasting(drifts(known)),
        )

    def _lasting(self, found: frozenset[Drift]) -> frozenset[Drift]:
        """What was so at the last look too: kubelet and API server tell of the same change at different times."""
        lasting, self._suspected = found & self._suspected, found
        for drift in sorted(lasting - (self._sampled.drifts or frozenset())):
            log.warning("drift: %s", drift.what, extra={"kind": str(drift.kind)})
        return lasting
