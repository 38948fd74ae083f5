"""Being a candidate: the shell round `election`, which says what is done and when, and what must always hold."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from aliquot_core.backoff import Backoff, Random
from aliquot_core.clock import Clock
from aliquot_core.errors import ClusterError
from aliquot_core.instants import seconds_of
from aliquot_core.names import Names
from aliquot_kube.election import (
    Election,
    ElectionSettings,
    Fence,
    Leader,
    Leave,
    Look,
    Make,
    Release,
    Rest,
    Step,
    Take,
)
from aliquot_kube.errors import ApiError
from aliquot_kube.lease import Claim, LeaseKeeper
from aliquot_kube.pacing import sleep_unless, within

log = logging.getLogger(__name__)


class NotLeadingError(ClusterError):
    """Something was to be done that only the leader may do."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What those are told who want to know of changes: our term, if we lead, and who leads."""

    fence: Fence | None = None
    leader: Leader | None = None

    @property
    def leads(self) -> bool:
        """Whether it is us."""
        return self.fence is not None


class Leadership:
    """One candidate for the lease that `keeper` keeps; `run` must be running."""

    def __init__(
        self,
        *,
        keeper: LeaseKeeper,
        clock: Clock,
        random: Random,
        name: str,
        address: str,
        names: Names,
        settings: ElectionSettings,
    ) -> None:
        """`name` is for people (the pod, say), `address` for followers that pass on what only the leader answers."""
        self._keeper = keeper
        self._clock = clock
        self._random = random
        # A pod's name outlives its process, and what a former life wrote is not ours.
        self.identity = f"{name}_{int(random() * 2**32):08x}"
        self._names = names
        self._address = address
        self._settings = settings
        self._election = Election(identity=self.identity, settings=settings, told_until=names.told_until)
        self._backoff = Backoff(first=settings.look, longest=settings.renew)
        self._failures = 0
        self._wake = asyncio.Event()
        self._changed = asyncio.Event()
        self._left = asyncio.Event()
        self._told = Standing()
        self._consumers: list[Callable[[Standing], None]] = []

    # --- what holds --------------------------------------------------------------------------------------------------
    def leads(self, now: float) -> bool:
        """Whether we lead at this instant of our clock."""
        return self._election.leads(now=now)

    @property
    def fence(self) -> Fence | None:
        """The term in which we lead now."""
        return self._election.fence(now=self._clock.monotonic())

    @property
    def beat_before(self) -> float | None:
        """When whoever led before our term has renewed last, by its own clock; None where nobody is known to have.

        A leader that had not read all by its end is passed over, and so is an older version's after one that says so.
        """
        return seconds_of(self._election.beat_before)

    @property
    def leader(self) -> Leader | None:
        """Who leads, as far as we know."""
        lease = self._election.holder(now=self._clock.monotonic())
        if lease is None:
            return None
        address = lease.metadata.annotations.get(self._names.address, "")
        return Leader(identity=lease.spec.holder_identity or "", address=address)

    def check(self) -> Fence:
        """Raise `NotLeadingError` unless we lead at this very instant; to be called right before every write."""
        if (fence := self.fence) is None:
            leader = self.leader
            raise NotLeadingError(
                "this replica does not lead", where=self.identity, remedy=f"ask {leader.address}" if leader else ""
            )
        return fence

    def has_read(self) -> None:
        """In this term all is read: from now on whoever leads next has only to look for what happens after our end."""
        self._election.has_read()

    # --- changes -----------------------------------------------------------------------------------------------------
    def subscribe(self, consumer: Callable[[Standing], None]) -> None:
        """Tell somebody now, and whenever we gain or lose the leadership or another one leads."""
        consumer(self._told)
        self._consumers.append(consumer)

    async def until(self, *, leads: bool) -> None:
        """Wait until we lead, or no longer do."""
        while self._told.leads is not leads:
            await self._changed.wait()

    async def resign(self) -> None:
        """Lead no longer and let the next one take over at once; `run` ends with it."""
        self._election.resign(now=self._clock.monotonic())
        self._tell()
        self._wake.set()
        await self._left.wait()

    # --- the work ----------------------------------------------------------------------------------------------------
    async def run(self) -> None:
        """Be a candidate until cancelled or resigned."""
        while not isinstance(step := self._election.step(now=self._clock.monotonic()), Leave):
            await self._do(step)
            self._tell()
        self._left.set()

    async def _do(self, step: Step) -> None:
        now = self._clock.monotonic()
        if isinstance(step, Rest):
            await sleep_unless(clock=self._clock, seconds=step.until - now, woken=self._wake)
            return
        try:
            await within(self._ask(step, sent_at=now), clock=self._clock, seconds=self._election.patience(now=now))
        except (ApiError, TimeoutError) as error:
            self._failures += 1
            # Once for a whole outage: it is asked again every 2 s at most, all night long.
            level = logging.WARNING if self._failures == 1 else logging.DEBUG
            log.log(level, "the lease could not be asked", extra={"step": type(step).__name__, "error": str(error)})
            rest = self._backoff.delay(failures=self._failures, random=self._random)
            self._election.failed(now=self._clock.monotonic(), rest=rest)
        else:
            if self._failures:
                log.info("the lease can be asked again", extra={"failures": self._failures})
            self._failures = 0

    async def _ask(self, step: Step, *, sent_at: float) -> None:
        match step:
            case Look():
                lease = await self._keeper.read()
                self._election.seen(lease, now=self._clock.monotonic())
            case Make():
                lease = await self._keeper.make()
                self._election.seen(lease, now=self._clock.monotonic())
            case Take(over=over):
                self._election.written(await self._keeper.put(self._claim(now=sent_at), over=over), sent_at=sent_at)
            case Release(over=over):
                self._election.released(await self._keeper.release(over=over))

    def _claim(self, *, now: float) -> Claim:
        wall = self._clock.wall()
        told_until = self._election.word(now=now, wall=wall)
        return Claim(
            holder=self.identity,
            duration=self._settings.duration,
            wall=wall,
            annotations={self._names.address: self._address, self._names.told_until: told_until},
        )

    def _tell(self) -> None:
        standing = Standing(fence=self.fence, leader=self.leader)
        if standing == self._told:
            return
        leader = standing.leader.identity if standing.leader else ""
        if standing.leads is not self._told.leads:
            log.info("leads" if standing.leads else "leads no longer", extra={"candidate": self.identity})
        elif not standing.leads:
            log.info("follows" if leader else "nobody leads", extra={"candidate": self.identity, "leader": leader})
        self._told = standing
        self._changed.set()
        self._changed = asyncio.Event()
        for consumer in self._consumers:
            consumer(standing)
