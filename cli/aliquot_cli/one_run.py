"""What `aliquot run` does from a pod's creation to its own end. Pure: events in, actions out.

Theory of operation. The pod is told of by a watch, the log by a stream, Ctrl-C by a signal; they come in any order. The
log is followed from the moment a container has started, or read once when the pod had ended by the time it was seen.
The run is over when the pod has ended (or is gone) and its log is read to the end.

    pod waits ──▶ said, when the reason or the place changes
    started   ──▶ the log is followed ──▶ ended and log read: the program's exit code
    Ctrl-C    ──▶ the pod is deleted as gracefully as it says; again: at once; again: nobody is waited for
    gone      ──▶ somebody took it away: said
    unheard   ──▶ whoever read our output has left, as `head` does: the pod is deleted
    unwritten ──▶ the disk that our output goes to is full: the program runs on, and its pod is kept with its log

What must always hold: the log is opened once at a time and read to its end before the run is over; a pod that was not
asked to stop is never deleted before it has ended; whoever is interrupted three times leaves.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from aliquot_cli.pod_stages import STARVED, Progress, Stage, exit_code, has_started, progress_of
from aliquot_core.names import Names
from aliquot_core.objects import Pod

# As shells have it: ended by Ctrl-C, by SIGKILL, and by SIGPIPE.
INTERRUPTED, KILLED, UNHEARD = 130, 137, 141
# The pod came to an end that says nothing of the program.
LOST = 4
_ENOUGH = 3
# The reason of the leader's condition, where no node could ever take the pod, and what can be done about it.
_NEVER = "NeverFits"
_PATIENCE = "it waits until there is one that could: Ctrl-C takes it back, to ask for less"


class Say(msgspec.Struct, frozen=True, kw_only=True):
    """Tell the user how it goes, if the user wants to be told."""

    text: str


class Warn(msgspec.Struct, frozen=True, kw_only=True):
    """Tell the user what is wrong, wanted or not: without it nobody could know why the code is no success."""

    text: str


class ReadLog(msgspec.Struct, frozen=True, kw_only=True):
    """Print what the pod prints, from the beginning; to be told when that is over."""

    follow: bool


class Delete(msgspec.Struct, frozen=True, kw_only=True):
    """Delete the pod; `now` leaves it no time."""

    now: bool = False


class End(msgspec.Struct, frozen=True, kw_only=True):
    """It is over."""

    code: int


Action = Say | Warn | ReadLog | Delete | End


class OneRun:
    """The machine."""

    def __init__(self, *, names: Names) -> None:
        self._names = names
        self._told: tuple[Stage, str, str] | None = None
        self._place = ""
        self._reading = self._read = False
        self._interrupts = 0
        self._code: int | None = None
        self.waits = False
        self.is_gone = False
        self.is_unwritten = False

    def seen(self, pod: Pod) -> Iterator[Action]:
        """The pod is there, or has changed."""
        now = progress_of(pod, names=self._names)
        self.waits = now.stage in {Stage.WAITING, Stage.PLACING}
        yield from self._tell(now)
        if pod.ended and self._code is None:
            code = exit_code(pod)
            self._code = LOST if code is None else code
            if code is None and now.why:
                yield Warn(text=f"it has failed: {now.why}")
            elif now.word == STARVED:
                yield Warn(text=now.why)
        if has_started(pod) and not self._reading:
            self._reading = True
            yield ReadLog(follow=not pod.ended)
        yield from self._over()

    def placed(self, place: str) -> Iterator[Action]:
        """Where in its queue the pod stands, as a sentence."""
        if self.waits and place != self._place:
            self._place = place
            yield Say(text=place)

    def gone(self) -> Iterator[Action]:
        """The pod is no more."""
        self.is_gone, self.waits = True, False
        if self._code is None:
            self._code = self._code_of_interrupts()
            if not self._interrupts:
                yield Warn(text="somebody has deleted it")
        yield from self._over()

    def log_ended(self) -> Iterator[Action]:
        """All that was printed is read."""
        self._read = True
        yield from self._over()

    def unheard(self) -> Iterator[Action]:
        """Nobody takes what it prints any more: it ends as a program does that prints into a closed pipe."""
        if self._code is None:
            self._code = UNHEARD
            yield Delete()

    def unwritten(self, why: str) -> Iterator[Action]:
        """What it prints can't be written down: no reason to end hours of work, yet nobody is to think all is there."""
        self.is_unwritten = True
        yield Warn(text=f"{why}; the program goes on, and its pod is kept: `aliquot logs` has what it prints")

    def interrupted(self) -> Iterator[Action]:
        """The user wants it to end."""
        self._interrupts += 1
        if self._interrupts >= _ENOUGH:
            yield End(code=KILLED)
        elif self._code is None:
            yield Say(text="stopping it; again: kill it now" if self._interrupts == 1 else "killing it")
            yield Delete(now=self._interrupts > 1)

    def _tell(self, now: Progress) -> Iterator[Action]:
        """What keeps the pod, when that has changed: numbers alone are no news."""
        told = (now.stage, now.word, "" if now.word else now.why)
        if told == self._told or self._interrupts:
            return
        self._told = told
        if now.why and now.stage in {Stage.WAITING, Stage.PLACING, Stage.STARTING}:
            yield Say(text=f"{now.stage}: {now.why}")
        if now.word == _NEVER:
            yield Say(text=_PATIENCE)

    def _over(self) -> Iterator[Action]:
        if self._code is not None and (self._read or not self._reading):
            yield End(code=LOST if self.is_unwritten and not self._code else self._code)

    def _code_of_interrupts(self) -> int:
        return LOST if not self._interrupts else INTERRUPTED if self._interrupts == 1 else KILLED
