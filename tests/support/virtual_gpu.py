"""A GPU without time: it serves processes in turns of 2 ms, and containers are held back as isolation/pace.c does it.

In steps of a fifth of a millisecond, so what comes out is the same on any machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from aliquot_agent.isolation.pacing import Pace, Seen, Share, next_beat
from aliquot_agent.isolation.turns import SIZES

STEP = 200_000
SECOND = 1_000_000_000
_TURN, _BEAT, _CREDIT, _DEEPEST = 2_000_000, 100_000_000, 200_000_000, 10_000_000


@dataclass(kw_only=True)
class Program:
    """One process: launches a batch of kernels of one step each, waits for them, and so on."""

    batch: int = 100
    left: int = 0
    queued: int = 0


@dataclass(kw_only=True)
class Slice:
    """One container, its account and what is in force for it."""

    share: Share
    programs: list[Program]
    rate: float
    weight: float = 1.0
    free_at: float = 0.0
    in_flight: int = 0
    busy: int = 0
    crowd: list[int] = field(default_factory=lambda: [0] * len(SIZES))
    charged: int = 0
    held: int = 0
    wanted: int = 0
    used: int = 0

    def charge(self, *, now: int) -> None:
        """Let every process pay that has work in flight."""
        at_work = sum(program.queued > 0 for program in self.programs)
        self.in_flight += at_work * STEP
        self.busy += STEP if at_work else 0
        if at_work:
            self.crowd[SIZES.index(at_work)] += STEP
        for _ in range(at_work):
            cost = int(STEP * self.weight)
            self.charged += cost
            self.free_at = max(self.free_at, now - _CREDIT) + cost / self.rate
            if self.rate >= 1:
                self.free_at = min(self.free_at, now)

    def deepest(self) -> float:
        """How much a process has queued at the most: what all have together is as deep as what one has."""
        return _DEEPEST / max(1, sum(program.queued > 0 for program in self.programs))

    def launch(self, program: Program, *, now: int) -> None:
        """As much of its batch as it may."""
        if not program.left and not program.queued:
            program.left = program.batch
        if not program.left:
            return
        self.wanted = now
        may = self.free_at <= now or self.rate >= 1
        while may and program.left and program.queued < self.deepest():
            program.queued += STEP
            program.left -= 1
        self.held += 0 if may else STEP


@dataclass(kw_only=True)
class VirtualGpu:
    """One GPU and those who contend for it."""

    slices: Sequence[Slice]
    now: int = 0
    _turn: int = 0
    _left: int = 0
    _paces: dict[str, Pace] = field(default_factory=dict)

    def run(self, seconds: float) -> list[float]:
        """Let time pass; percent of the GPU that each slice used meanwhile."""
        before, began = [one.used for one in self.slices], self.now
        while self.now < began + seconds * SECOND:
            self._serve()
            for one in self.slices:
                one.charge(now=self.now)
                for program in one.programs:
                    one.launch(program, now=self.now)
            self.now += STEP
            if self.now % _BEAT == 0:
                self._beat()
        return [100 * (one.used - early) / (self.now - began) for one, early in zip(self.slices, before, strict=True)]

    def _serve(self) -> None:
        """A step for whose turn it is; who has nothing to do has none."""
        queues = [(one, program) for one in self.slices for program in one.programs]
        if not self._left or not queues[self._turn][1].queued:
            order = [(self._turn + step) % len(queues) for step in range(1, len(queues) + 1)]
            self._turn = next((at for at in order if queues[at][1].queued), self._turn)
            self._left = _TURN
        one, program = queues[self._turn]
        if program.queued:
            program.queued -= STEP
            self._left -= STEP
            one.used += STEP

    def _beat(self) -> None:
        """What the agent does ten times a second."""
        shares = {str(number): one.share for number, one in enumerate(self.slices)}
        seen = {str(number): _seen(one) for number, one in enumerate(self.slices)}
        self._paces = next_beat(shares, self._paces, seen, now=self.now, since=self.now - _BEAT)
        for number, one in enumerate(self.slices):
            one.rate, one.weight = self._paces[str(number)].rate, self._paces[str(number)].weight


def contending(shares: Sequence[int], *, processes: Sequence[int] = (), batch: int = 100) -> VirtualGpu:
    """Slices of so many percent that all want more, each with so many processes, or one."""
    counts = processes or [1] * len(shares)
    return VirtualGpu(
        slices=[
            Slice(
                share=Share(guarantee=share / 100, limit=share / 100),
                programs=[Program(batch=batch) for _ in range(count)],
                rate=share / 100,
            )
            for share, count in zip(shares, counts, strict=True)
        ]
    )


def _seen(one: Slice) -> Seen:
    return Seen(
        in_flight=one.in_flight,
        busy=one.busy,
        crowd=tuple(one.crowd),
        charged=one.charged,
        held=one.held,
        wanted=one.wanted,
        used=None,
    )
