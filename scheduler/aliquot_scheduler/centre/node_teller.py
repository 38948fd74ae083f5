"""Tells people of nodes that go out for a fault and come in again: an Event on each, beside the line in the log.

Of one that was never in while we led nothing is told: it may be new, or have no GPUs at all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from aliquot_scheduler.centre.means import Means
from aliquot_scheduler.centre.put_off import PutOff
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.picture.signs import is_fault
from aliquot_scheduler.queues.telling.notices import Notice

_LOOK = 2.0
_BACK = Notice(reason="NodeIn", message="pods with slices are placed here again")


class NodeTeller:
    """Looks who is out; `run` tells."""

    def __init__(self, *, picture: Picture, means: Means) -> None:
        self._picture = picture
        self._clock, self._events = means.clock, means.events
        # Who was in when it was last known, and who was told to be out.
        self._in = frozenset[str]()
        self._told = frozenset[str]()
        self._untold = PutOff(what="an Event of a node could not be told", means=means)

    @property
    def untold(self) -> int:
        """How often a node's Event could not be told."""
        return self._untold.count

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            self.look()
            await self._clock.sleep(_LOOK)

    def look(self) -> None:
        """Tell of those that went and came since the last look."""
        # Nobody need decide anything just now: silence takes a node out all the same.
        self._picture.tell_time(self._clock.monotonic())
        why = {name: known.out for name, known in self._picture.nodes.items()}
        went = {name for name in self._in & why.keys() if is_fault(why[name])}
        back = {name for name in self._told & why.keys() if not why[name]}
        self._untold.look_begins()
        went = {name for name in sorted(went) if self._tells(name, partial(self._tell_out, name, why[name]))}
        back = {name for name in sorted(back) if self._tells(name, partial(self._tell_back, name))}
        self._in = (self._in & why.keys()) - went | {name for name, out in why.items() if not out}
        self._told = (self._told & why.keys()) - back | went

    def _tells(self, node: str, tell: Callable[[], None]) -> bool:
        """Whether it is told now; else it is tried again, and others are told theirs."""
        self._untold.attempt(node, tell, of=node)
        return node not in self._untold

    def _tell_out(self, node: str, why: str) -> None:
        notice = Notice(reason="NodeOut", message=f"no pod with a slice is placed here: {why}")
        self._events.tell_of_node(node, notice, action="Judging", warning=True)

    def _tell_back(self, node: str) -> None:
        self._events.tell_of_node(node, _BACK, action="Judging")
