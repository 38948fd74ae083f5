"""Candidates whose clocks differ, over a network that delays, loses and reorders: never do two of them lead at once."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aliquot_core.objects import Lease, LeaseSpec, ObjectMeta
from aliquot_kube.election import Election, ElectionSettings, Fence, Leave, Look, Make, Release, Rest, Step, Take
from aliquot_kube.lease import Claim

TIMES = ElectionSettings()
# The fastest clock over the slowest is just below 10 s / 8 s, which is what the margin allows.
RATES = (0.9, 1.0, 1.12)
CANDIDATES = range(3)
# Instants at which something ends or begins, for the slowest and the fastest clock, and small steps between.
PAUSES = (0.05, 0.4, 1.5, 2.6, 3.4, 7.1, 7.9, 8.8, 8.95, 10.0, 11.2)
SMALL_STEP = 0.02


class Refused(Exception):  # noqa: N818 - a 409, which is no error of the model
    """The version that was to be written over is not there any more."""


class Server:
    """The lease as the API server has it."""

    def __init__(self) -> None:
        self.lease: Lease | None = None
        self._versions = 0

    def do(self, step: Step, claim: Claim) -> Lease | None:
        """Read, make, or write over what was read."""
        if isinstance(step, Take | Release):
            if self.lease is None or step.over.metadata != self.lease.metadata:
                raise Refused
            let_go = msgspec.structs.replace(step.over.spec, holder_identity="")
            return self.store(claim.spec(last=step.over.spec) if isinstance(step, Take) else let_go)
        if isinstance(step, Make):
            if self.lease is not None:
                raise Refused
            return self.store(LeaseSpec())
        return self.lease

    def store(self, spec: LeaseSpec) -> Lease:
        """Give what is written a new version, and an identity if it is new."""
        self._versions += 1
        uid = self.lease.metadata.uid if self.lease else str(self._versions)
        self.lease = Lease(metadata=ObjectMeta(name="x", uid=uid, resource_version=str(self._versions)), spec=spec)
        return self.lease


@dataclass(eq=False)
class Message:
    """A request on its way; it may arrive long after its sender has given it up."""

    step: Step
    claim: Claim
    sent_at: float
    sender: Election
    arrived: bool = False
    answer: Lease | None = None
    refused: bool = False


@dataclass
class Candidate:
    """One process after another in one place, with a clock of its own."""

    place: int
    rate: float
    offset: float
    wall: float = 0.0
    lives: int = 0
    waits_for: Message | None = None
    election: Election = field(init=False)

    def __post_init__(self) -> None:
        self.begin()

    @property
    def identity(self) -> str:
        """Of this life."""
        return f"{self.place}-{self.lives}"

    def begin(self) -> None:
        """Start anew, knowing nothing."""
        self.lives += 1
        self.waits_for = None
        self.election = Election(identity=self.identity, settings=TIMES, told_until="example.org/told-until")

    def now(self, time: float) -> float:
        """Our clock at an instant that nobody knows."""
        return self.offset + self.rate * time

    def leads(self, time: float) -> bool:
        """Whether we believe to lead."""
        return self.election.leads(now=self.now(time))

    def ask(self, time: float) -> Message | None:
        """Send what is to be asked, if anything; whoever is done starts anew."""
        now = self.now(time)
        step = self.election.step(now=now)
        if isinstance(step, Leave):
            self.begin()
        if isinstance(step, Rest | Leave):
            return None
        claim = Claim(holder=self.identity, duration=TIMES.duration, wall=1e9 + self.wall + time)
        self.waits_for = Message(step=step, claim=claim, sent_at=now, sender=self.election)
        return self.waits_for

    def hear(self, time: float) -> None:
        """Take the answer of what was asked."""
        message, now = self.waits_for, self.now(time)
        assert message is not None
        self.waits_for = None
        if message.refused:
            self.election.failed(now=now, rest=TIMES.look)
        elif isinstance(message.step, Look | Make):
            self.election.seen(message.answer, now=now)
        elif message.answer is not None and isinstance(message.step, Take):
            self.election.written(message.answer, sent_at=message.sent_at)
        elif message.answer is not None:
            self.election.released(message.answer)

    def hear_or_give_up(self, time: float) -> None:
        """Wait for nothing."""
        if self.waits_for and self.waits_for.arrived:
            self.hear(time)
        elif self.waits_for:
            self.give_up(time, rest=TIMES.look)

    def give_up(self, time: float, *, rest: float) -> None:
        """Wait no longer."""
        self.waits_for = None
        self.election.failed(now=self.now(time), rest=rest)


class Rivals(RuleBasedStateMachine):
    """Everything that may happen between candidates and their lease."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 0.0
        self.server = Server()
        self.messages: list[Message] = []
        # The last by each lease, by its uid.
        self.terms: dict[str, tuple[Fence, str]] = {}
        self.candidates: list[Candidate] = []

    @initialize(rates=st.permutations(RATES))
    def begin(self, rates: list[float]) -> None:
        """Three machines, whose clocks differ."""
        self.candidates += [
            Candidate(place=place, rate=rate, offset=1000.0 * (place + 1)) for place, rate in enumerate(rates)
        ]

    # --- the candidates ----------------------------------------------------------------------------------------------
    @rule(place=st.sampled_from(CANDIDATES))
    def ask(self, place: int) -> None:
        """A candidate that waits for nothing asks."""
        candidate = self.candidates[place]
        if candidate.waits_for is None and (message := candidate.ask(self.time)):
            self.messages.append(message)

    @rule(place=st.sampled_from(CANDIDATES))
    def hear(self, place: int) -> None:
        """An answer arrives."""
        candidate = self.candidates[place]
        if candidate.waits_for and candidate.waits_for.arrived:
            candidate.hear(self.time)

    @rule(place=st.sampled_from(CANDIDATES), rest=st.sampled_from([0.25, 3.0]))
    def give_up(self, place: int, rest: float) -> None:
        """An answer takes too long, or is lost."""
        if self.candidates[place].waits_for:
            self.candidates[place].give_up(self.time, rest=rest)

    @rule(place=st.sampled_from(CANDIDATES), pause=st.sampled_from(PAUSES))
    def run_well(self, place: int, pause: float) -> None:
        """A candidate lives for a while without any trouble, and nobody else does anything."""
        end = self.time + pause
        while self.time < end:
            self._turn(self.candidates[place])
            self.time = min(end, self.time + 0.2)
            self.two_never_lead()

    @rule(place=st.sampled_from(CANDIDATES))
    def run_until_it_leads(self, place: int) -> None:
        """A candidate lives well and all others are cut off: whoever led believes until its time is over."""
        candidate, end = self.candidates[place], self.time + 2 * TIMES.duration
        candidate.hear_or_give_up(self.time)
        while not candidate.leads(self.time):
            assert self.time < end, "it does not lead"
            self._turn(candidate)
            self.time += SMALL_STEP
            self.two_never_lead()

    @rule(place=st.sampled_from(CANDIDATES))
    def crash(self, place: int) -> None:
        """A process is killed, and another one starts in its place; its requests are still on their way."""
        self.candidates[place].begin()

    @rule(place=st.sampled_from(CANDIDATES))
    def resign(self, place: int) -> None:
        """A process is told to stop."""
        candidate = self.candidates[place]
        candidate.election.resign(now=candidate.now(self.time))

    # --- what is around them -----------------------------------------------------------------------------------------
    @rule(pause=st.sampled_from(PAUSES))
    def pass_time(self, pause: float) -> None:
        """Nothing happens for a while."""
        self.time += pause

    @precondition(lambda self: any(not message.arrived for message in self.messages))
    @rule(data=st.data())
    def arrive(self, data: st.DataObject) -> None:
        """The API server acts on a request, in any order, also on one that its sender has given up."""
        message = data.draw(st.sampled_from([message for message in self.messages if not message.arrived]))
        self._arrive(message)

    @rule()
    def touch(self) -> None:
        """Somebody writes the lease, and leaves who holds it."""
        if self.server.lease:
            self.server.store(self.server.lease.spec)

    @rule()
    def delete(self) -> None:
        """Somebody deletes the lease."""
        self.server.lease = None

    @rule(place=st.sampled_from(CANDIDATES), by=st.sampled_from([-1e6, 1e6]))
    def set_the_clock(self, place: int, by: float) -> None:
        """A wall clock jumps."""
        self.candidates[place].wall += by

    @rule()
    def calm_down(self) -> None:
        """Within two durations after the last fault somebody leads."""
        self.messages.clear()
        for candidate in self.candidates:
            candidate.hear_or_give_up(self.time)
        end = self.time + 2 * TIMES.duration
        while not any(candidate.leads(self.time) for candidate in self.candidates):
            assert self.time < end, "nobody leads"
            for candidate in self.candidates:
                self._turn(candidate)
            self.time += SMALL_STEP
            self.two_never_lead()

    # --- what must always hold ---------------------------------------------------------------------------------------
    @invariant()
    def two_never_lead(self) -> None:
        """At no instant do two believe to lead, and of those who led by one lease the later has the greater term."""
        leading = [candidate for candidate in self.candidates if candidate.leads(self.time)]
        assert len(leading) <= 1
        for one in leading:
            now = one.now(self.time)
            fence, lease = one.election.fence(now=now), one.election.holder(now=now)
            assert fence is not None
            assert lease is not None
            term = (fence, one.identity)
            last = self.terms.setdefault(lease.metadata.uid, term)
            assert term == last or fence.transitions > last[0].transitions
            self.terms[lease.metadata.uid] = term

    def _turn(self, candidate: Candidate) -> None:
        """One request and its answer, at one instant."""
        if candidate.waits_for is None and (message := candidate.ask(self.time)):
            self.messages.append(message)
        if candidate.waits_for:
            self._arrive(candidate.waits_for)
            candidate.hear(self.time)

    def _arrive(self, message: Message) -> None:
        if message.arrived:
            return
        message.arrived = True
        try:
            message.answer = self.server.do(message.step, message.claim)
        except Refused:
            message.refused = True


Rivals.TestCase.settings = settings(max_examples=200, stateful_step_count=60)
TestRivals = Rivals.TestCase
