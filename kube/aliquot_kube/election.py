"""Who leads: the state machine behind `Leadership`, without clock, network or chance.

Theory of operation. Candidates share one lease. Whoever holds it renews it; the others look at it, and one that saw it
unchanged for its duration, less what it may have seen it late, takes it over: so a leader that dies costs no more than
the lease's duration. All instants are of the candidate's own monotonic clock: what others wrote of time is compared for
equality and never for order. The driver asks for the next step (`Look`, `Make`, `Take`, `Release`, `Rest`, `Leave`),
does it, and tells how it went (`seen`, `written`, `released`, `failed`).

What must always hold:
 1. Two candidates never both believe to lead at one instant, whatever their wall clocks say and however slow requests
    are. A leader's belief ends `duration - margin` after its last answered renewal was *sent*; a follower begins to
    count when the answer that shows that renewal has *arrived*, which is later, and counts the duration less `early`.
    What the margin is longer than that is for clocks that tick at different speeds (20 %), and for what the old leader
    still has on its way.
 2. A claim goes over the very version that was judged: of two who claim, one is refused.
 3. After a claim of unknown outcome the lease is looked at before it is written again, and what a look shows renews
    nobody's belief: only an answered write does.
 4. A lease that was let go may be taken at once, for a leader stops believing before it lets go. One that is *gone*
    can't be taken: whoever held it may still believe, and that there is none is no version to write over (it may be
    gone, back, and gone again). It is made, held by nobody, and a lease that was never held is waited for like any.
 5. An identity is of one life of a process: what a former life wrote is somebody else's.

Not covered: a machine that sleeps stops its monotonic clock, and nothing recalls a request on its way. So what the
leader writes is also guarded one by one (`Leadership.check`, and versions or uids in the writes themselves).
"""

from __future__ import annotations

import math
from typing import Annotated, Final

import msgspec

from aliquot_core.errors import ClusterError
from aliquot_core.instants import micro_time
from aliquot_core.objects import Lease

Seconds = Annotated[float, msgspec.Meta(gt=0)]


class ElectionSettingsError(ClusterError):
    """Times that do not go together."""


class ElectionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Section `[election]`."""

    # How long a lease is good for without being renewed: what a leader that is killed costs at most.
    duration: Seconds = 10.0
    # From one renewal to the next.
    renew: Seconds = 2.0
    # So much earlier than the lease ends a leader stops believing.
    margin: Seconds = 3.0
    # No request may take longer; one that does counts as lost. Who ends waits for two.
    request: Annotated[float, msgspec.Meta(gt=0, le=60)] = 1.5
    # How often followers look, so that one that lets go is replaced within so much; and the first rest after a failure.
    look: Seconds = 0.5

    @property
    def early(self) -> float:
        """So much before the lease ends others begin to take over: they see a renewal a look late, and may be busy."""
        return 2 * self.look

    def __post_init__(self) -> None:
        if self.early >= self.margin:
            raise ElectionSettingsError(
                f"others may take over {self.early:g} s before the lease ends, two looks, and a leader stops believing "
                f"only {self.margin:g} s before",
                where="settings election",
                remedy="lengthen margin, or shorten look",
            )
        # A renewal that is lost, a look that takes its time and another renewal that does so too.
        least = self.renew + 3 * self.request + self.look
        if least > self.duration - self.margin:
            raise ElectionSettingsError(
                f"one lost request would cost the leadership: renew + 3 * request + look is {least:g} s, and a leader "
                f"believes for duration - margin = {self.duration - self.margin:g} s",
                where="settings election",
                remedy="lengthen duration, or shorten renew, request or margin",
            )


def longest_renew(duration: float) -> float:
    """The most seconds between two renewals of a lease that is good for so long, where the rest is as it is by default.

    For whoever sees the lease and not its holder's settings.
    """
    usual = ElectionSettings()
    return max(usual.renew, duration - usual.margin - 3 * usual.request - usual.look)


# Where nobody is known to have led.
_NEVER: Final = micro_time(0.0)


class Look(msgspec.Struct, frozen=True):
    """Read the lease; then `seen` or `failed`."""


class Make(msgspec.Struct, frozen=True):
    """Make a lease that nobody holds; then `seen` or `failed`."""


class Take(msgspec.Struct, frozen=True):
    """Claim or renew the lease over this version; then `written` or `failed`."""

    over: Lease


class Release(msgspec.Struct, frozen=True):
    """Let nobody hold this version; then `released` or `failed`."""

    over: Lease


class Rest(msgspec.Struct, frozen=True):
    """Nothing is to be done until then."""

    until: float


class Leave(msgspec.Struct, frozen=True):
    """All is done, for good."""


Step = Look | Make | Take | Release | Rest | Leave


class Fence(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A term of leadership: whoever leads later has a greater one, unless somebody deletes the lease."""

    transitions: int
    acquired: str


class Leader(msgspec.Struct, frozen=True, kw_only=True):
    """Who leads, and where it is asked."""

    identity: str
    address: str


class Election:
    """One candidate's part."""

    def __init__(self, *, identity: str, settings: ElectionSettings, told_until: str) -> None:
        """`told_until` is the lease's annotation for what is to be carried on from leader to leader."""
        self._identity = identity
        self._told_until = told_until
        self._settings = settings
        # What was seen or written last, and whether nothing has come to nothing since.
        self._lease: Lease | None = None
        self._certain = False
        self._looked_at = -math.inf
        self._renewed_at = -math.inf
        # From then on others' claim to the lease is over.
        self._ripe_at = math.inf
        self._rest_until = -math.inf
        self._leave_by: float | None = None
        # Our belief to lead ends then, or has ended.
        self.leads_until = -math.inf
        # When the last leader renewed last that had read all, as it wrote: until then all is told. And what that was
        # before our term began. An older version leaves what was written before it, and nobody knows what it has read.
        # By others' wall clocks: for those who compare it with what others wrote, and nothing here is judged by it.
        self._beat = ""
        self.beat_before = ""
        # Whether in our term all is read.
        self._has_read = False

    # --- what we believe ---------------------------------------------------------------------------------------------
    def leads(self, *, now: float) -> bool:
        """Whether we lead at this instant."""
        return now < self.leads_until

    def fence(self, *, now: float) -> Fence | None:
        """The term in which we lead; none if we do not."""
        if self._lease is None or not self.leads(now=now):
            return None
        spec = self._lease.spec
        return Fence(transitions=spec.lease_transitions or 0, acquired=spec.acquire_time or "")

    def holder(self, *, now: float) -> Lease | None:
        """The lease of whoever leads, as far as we know; none where nobody does."""
        believed = self.leads(now=now) if self._is_mine else now < self._ripe_at
        return self._lease if self._lease and self._lease.spec.holder_identity and believed else None

    def patience(self, *, now: float) -> float:
        """How long the next request may take: no longer than our belief lasts, for its end is to be told at once."""
        left = self.leads_until - now
        return min(self._settings.request, left) if left > 0 else self._settings.request

    def word(self, *, now: float, wall: float) -> str:
        """Until when all is told, as the next claim or renewal, which is of this instant, is to say."""
        if not self.leads(now=now):
            return self._beat or _NEVER
        return micro_time(wall) if self._has_read else self.beat_before or _NEVER

    # --- what to do --------------------------------------------------------------------------------------------------
    def step(self, *, now: float) -> Step:
        """What to do next."""
        if self._leave_by is not None:
            return self._step_out(self._leave_by, now=now)
        if now < self._rest_until:
            return self._rest(self._rest_until, now=now)
        if not self._certain:
            return Look()
        if self._lease is None:
            return Make()
        if self._is_mine:
            due = self._renewed_at + self._settings.renew
            return Take(self._lease) if now >= due else self._rest(due, now=now)
        return self._wait_for(self._lease, now=now)

    def _wait_for(self, lease: Lease, *, now: float) -> Step:
        if now >= self._ripe_at:
            return Take(lease)
        due = self._looked_at + self._settings.look
        return Look() if now >= due else Rest(min(due, self._ripe_at))

    def _step_out(self, leave_by: float, *, now: float) -> Step:
        if now >= leave_by:
            return Leave()
        if now < self._rest_until:
            return Rest(min(self._rest_until, leave_by))
        if not self._certain:
            return Look()
        return Release(self._lease) if self._lease and self._is_mine else Leave()

    def _rest(self, until: float, *, now: float) -> Rest:
        return Rest(min(until, self.leads_until) if self.leads(now=now) else until)

    # --- how it went -------------------------------------------------------------------------------------------------
    def seen(self, lease: Lease | None, *, now: float) -> None:
        """The lease was read, or made; `now` is when the answer arrived."""
        before, self._lease, self._certain, self._looked_at = self._lease, lease, True, now
        if self._is_mine:
            return
        self._beat = self._beat_of(lease) or self._beat
        self.leads_until = min(self.leads_until, now)
        if lease is None:
            self._ripe_at = math.inf
        elif _mark(lease) != _mark(before):
            let_go = not lease.spec.holder_identity and lease.spec.renew_time
            self._ripe_at = now if let_go else now + self._wait_out(lease)

    def written(self, lease: Lease, *, sent_at: float) -> None:
        """A claim or renewal stands; `sent_at` is when it was sent."""
        if not self.leads(now=sent_at):
            self.beat_before, self._has_read = self._beat, False
        self._beat = self._beat_of(lease)
        self._lease, self._certain, self._renewed_at = lease, True, sent_at
        if self._leave_by is None:
            self.leads_until = max(self.leads_until, sent_at + self._settings.duration - self._settings.margin)

    def has_read(self) -> None:
        """All that there is was gone through in our term: what happened before it nobody has to look for any more."""
        self._has_read = True

    def released(self, lease: Lease) -> None:
        """Nobody holds the lease now."""
        self._lease = lease

    def failed(self, *, now: float, rest: float) -> None:
        """A request was refused, lost, or not answered in time; let the API server alone for so long."""
        self._certain = False
        self._rest_until = now + rest

    def resign(self, *, now: float) -> None:
        """Lead no longer, and let go of the lease if that can be done soon."""
        if self._leave_by is None:
            self._leave_by = now + 2 * self._settings.request
            self.leads_until = min(self.leads_until, now)

    def _beat_of(self, lease: Lease | None) -> str:
        if lease is None:
            return ""
        # Where older versions alone have led it says nothing else.
        return lease.metadata.annotations.get(self._told_until) or lease.spec.renew_time or ""

    @property
    def _is_mine(self) -> bool:
        return self._lease is not None and self._lease.spec.holder_identity == self._identity

    def _wait_out(self, lease: Lease) -> float:
        """Its holder may have been started with longer times than ours, and acts by them."""
        return max(self._settings.duration, lease.spec.lease_duration_seconds or 0) - self._settings.early


def _mark(lease: Lease | None) -> tuple[str, ...] | None:
    """What changes with every write."""
    if lease is None:
        return None
    meta, spec = lease.metadata, lease.spec
    return (meta.uid, meta.resource_version, spec.holder_identity or "", spec.renew_time or "")
