"""Which schedulers have asked for any pod at all, and whether they were silent lately.

A turn is of use only if the pod's scheduler asks for it. One whose name was never heard may be none that asks us; and
after an outage of the API server kube-scheduler stays blind for longer than we do: for 14 s after 15 s without it.
"""

from __future__ import annotations

from math import inf

# Seconds without any question that are taken for silence: half of a turn.
SILENCE = 15.0


class Heard:
    """Of one leader: the next one begins to listen anew."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._last = -inf
        # When a question ended a silence; and when a pod was placed last.
        self._ended = -inf
        self._placed = -inf

    def asked(self, name: str, *, now: float) -> bool:
        """A scheduler asks for a pod; whether it is the first time that it is heard of."""
        if now - self._last > SILENCE:
            self._ended = now
        self._last = now
        return self._is_new(name)

    def placed(self, name: str, *, now: float) -> None:
        """A pod of it is placed by us, so it asks."""
        self._placed = now
        self._is_new(name)

    def _is_new(self, name: str) -> bool:
        new = name not in self._names
        self._names.add(name)
        return new

    def knows(self, name: str) -> bool:
        """Whether it was heard; a pod that names none has that of its cluster."""
        return not name or name in self._names

    def is_away(self, name: str, *, since: float, now: float) -> bool:
        """Whether none has done anything since then, and for a while: neither asked for any pod, nor placed one.

        It is nobody's doing then that nothing is bound. A name that was never heard of is somebody's, if others were.
        """
        return max(self._last, self._placed) < min(since, now - SILENCE) and (self.knows(name) or not self._names)

    def was_silent(self, *, now: float, lately: float) -> bool:
        """Whether nobody asked for anything for a while, now or within so many seconds."""
        return now - self._last > SILENCE or now - self._ended <= lately
