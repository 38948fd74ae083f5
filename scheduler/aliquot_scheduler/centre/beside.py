"""What those beside the decisions take in of a watch, and their Events: one pod that fails there costs nobody else.

A watch ends with what a subscriber raises, and the leader with its watch: whoever keeps the picture must never go on
with a part of it. Whoever only tells people, or writes beside the decisions, may: of that one pod its word is missing
or old, until the watch tells of it again. It is put in the log, with what to do, and counted (`put_off.py`). Where one
that failed is taken in the next time, that is as it should be again. And where one of them stops altogether, it begins
again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Hashable
from typing import Any

from aliquot_core.objects import ObjectReference, Pod
from aliquot_kube.changes import Added, Change, Deleted, Modified
from aliquot_scheduler.centre.means import Means
from aliquot_scheduler.centre.put_off import PutOff

# Nobody looks here again and again: so long is a look, for the lines that one may write.
_LOOK = 4.0
# One that has stopped begins again after so long.
_BEGIN_AGAIN = 5.0


class Beside:
    """Of one term of leading."""

    def __init__(self, *, means: Means) -> None:
        self._clock = means.clock
        self._untaken = PutOff(what="what the watch tells of a pod could not be taken in", means=means)
        self._unwritten = PutOff(what="an Event could not be written", means=means)
        self._stopped = PutOff(what="work beside the decisions has stopped", means=means)
        self._look_ends = 0.0

    @property
    def untold(self) -> int:
        """How often something could not be taken in, or an Event not be written, or one of them has stopped."""
        return self._untaken.count + self._unwritten.count + self._stopped.count

    def taking_in(self, take: Callable[[Change[Pod]], None]) -> Callable[[Change[Pod]], None]:
        """The same subscriber; what it raises about one pod is told of, and is of no other."""

        def taken(change: Change[Pod]) -> None:
            pod = _of(change)
            if pod is None:
                take(change)
                return
            whose = take, pod.metadata.uid
            try:
                take(change)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is told of, and others go on
                self._failed(self._untaken, whose, error, of=pod.key)
            else:
                self._untaken.is_done(whose)

        return taken

    def going_on(self, work: str, run: Callable[[], Awaitable[None]]) -> Callable[[], Coroutine[Any, Any, None]]:
        """The same work, without end: it begins again where a defect has ended it."""

        async def runs() -> None:
            while True:
                try:
                    await run()
                except Exception as error:  # noqa: BLE001 - whatever it is, it is told of, and the leader goes on
                    self._failed(self._stopped, work, error, of=work)
                await self._clock.sleep(_BEGIN_AGAIN)

        return runs

    def not_written(self, regarding: ObjectReference, error: Exception) -> None:
        """An Event is dropped."""
        of = f"{regarding.namespace}/{regarding.name}" if regarding.namespace else regarding.name
        self._failed(self._unwritten, regarding.uid, error, of=of)

    def _failed(self, put_off: PutOff, whose: Hashable, error: Exception, *, of: str) -> None:
        now = self._clock.monotonic()
        if now >= self._look_ends:
            self._look_ends = now + _LOOK
            self._untaken.look_begins()
            self._unwritten.look_begins()
            self._stopped.look_begins()
        put_off.failed(whose, error, of=of)


def _of(change: Change[Pod]) -> Pod | None:
    match change:
        case Added(new=pod) | Modified(new=pod) | Deleted(old=pod):
            return pod
        case _:
            return None
