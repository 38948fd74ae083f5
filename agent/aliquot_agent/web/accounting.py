"""Puts each sample to the accounts of slices, and writes down what is said of them until the next one.

All of it is work for one thread beside the loop: it is handed snapshots, and reads nothing that changes under it but
/proc, of which no two readings agree anyhow.
"""

from __future__ import annotations

import logging

import msgspec

from aliquot_agent.pods.residents import Register
from aliquot_agent.starting.decision import Known
from aliquot_agent.starting.drift import Drift, drifts
from aliquot_agent.starting.room import in_force, totals
from aliquot_agent.web.accounts import Tenant, accounts
from aliquot_agent.web.exposition import write
from aliquot_agent.web.figures import Sampled
from aliquot_agent.web.metrics import SlicesCollector
from aliquot_agent.web.usage_watch import Sample
from aliquot_core.grant import readable_grant
from aliquot_core.objects import Pod

log = logging.getLogger(__name__)


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a sample, and what a scrape is told of slices."""

    sampled: Sampled = Sampled()
    slices: bytes = b""


def snapshot(known: Known) -> Known:
    """The same, and nobody changes it any more."""
    return msgspec.structs.replace(known, pods=dict(known.pods), standing=dict(known.standing))


class Accounting:
    """One agent's accounts."""

    def __init__(self, *, register: Register, grant: str) -> None:
        """`register` knows where processes live, `grant` is the annotation's name."""
        self._register = register
        self._grant = grant
        self._lasting: frozenset[Drift] = frozenset()
        self._suspected: frozenset[Drift] = frozenset()

    def account(self, known: Known, sample: Sample) -> Told:
        """Put every process of a sample to the account of a slice."""
        sampled = self._sampled(known, sample)
        return Told(sampled=sampled, slices=write(SlicesCollector(sampled.accounts.slices).collect()))

    def _sampled(self, known: Known, sample: Sample) -> Sampled:
        usages = {usage.uuid: usage for usage in sample.usages}
        if not known.complete or (known.recorded is None and not known.listed):
            # Who holds what is not known: the GPUs are told of, and no slices.
            return Sampled(at=sample.at, usages=usages, seats=known.seats)
        held = dict(in_force(known))
        tenants = {uid: one for uid in held if (one := self._tenant(known.pods.get(uid))) is not None}
        pids = {process.pid for usage in sample.usages for process in usage.processes}
        found = accounts(
            usages=sample.usages,
            dwellings=self._register.dwellings(pids),
            tenants=tenants,
            standing={uid: known.standing[uid] for uid in held.keys() & known.standing.keys() - tenants.keys()},
            servers={pid for seat in known.seats.values() if seat.told for pid in seat.told.servers},
        )
        return Sampled(
            at=sample.at,
            usages=usages,
            accounts=found,
            claims=totals(held.values()),
            drifts=self._drifts(known),
            seats=known.seats,
        )

    def _tenant(self, pod: Pod | None) -> Tenant | None:
        """A pod with its grant; none where only what it started with is left, or its grant was spoilt since."""
        if pod is None or pod.ended:
            return None
        grant = readable_grant(pod.metadata.annotations.get(self._grant))
        return None if grant is None else Tenant(pod=pod, grant=grant)

    def _drifts(self, known: Known) -> frozenset[Drift]:
        """What was so at the last look too: kubelet and API server tell of the same change at different times."""
        found = drifts(known)
        lasting, self._suspected = found & self._suspected, found
        for drift in sorted(lasting - self._lasting):
            log.warning("drift: %s", drift.what, extra={"kind": str(drift.kind)})
        self._lasting = lasting
        return lasting
