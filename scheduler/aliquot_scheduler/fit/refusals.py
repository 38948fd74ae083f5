"""Why a node does not take a pod, in numbers: "3 of 8 GPUs have 30 % free, none has also 20000 MiB".

`causes` finds the cause and its numbers, here they are put into words. Most refused nodes are refused for the same
reason, so few sentences are written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import msgspec

from aliquot_core.counting import agreed, counted
from aliquot_core.names import Names
from aliquot_scheduler.fit.causes import Causes
from aliquot_scheduler.fit.finding import Finding, NodeCause
from aliquot_scheduler.fit.phrases import ALLOWED, MEANT, Phrases, compute, have, memory, needed, some
from aliquot_scheduler.picture.picture import KnownNode

# So many reasons of many nodes are told.
_TOLD = 3


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why not: the cause, and in a sentence."""

    cause: NodeCause
    why: str

    @property
    def final(self) -> bool:
        """Whether that stays so whoever is evicted."""
        return self.cause.final


def told_often(reasons: Counter[str]) -> str:
    """The most frequent of them, with how many nodes give each, and other ones; of a single node no number is told."""
    if reasons.total() == 1:
        return next(iter(reasons))
    often = reasons.most_common(_TOLD)
    others = reasons.total() - sum(count for _, count in often)
    return "; ".join(
        [*(f"{why} ({count})" for why, count in often), *([f"other reasons ({others})"] if others else [])]
    )


class Refusals:
    """The sentences for one pod."""

    def __init__(self, causes: Causes, *, names: Names) -> None:
        self._causes = causes
        self._phrases = Phrases(causes, names=names)
        self._said: dict[tuple[Finding, str], Refusal] = {}
        self._sentences: Mapping[NodeCause, Callable[[Finding], str]] = {
            NodeCause.NOT_MEANT: self._not_meant,
            NodeCause.ISOLATION: self._isolation,
            NodeCause.CONTEXT: self._context,
            NodeCause.TOO_SMALL: self._too_small,
            NodeCause.NO_SHARED_MODE: self._no_shared_mode,
            NodeCause.NOT_TOGETHER: self._not_together,
            NodeCause.INIT_STUCK: self._init_stuck,
            NodeCause.NO_ROOM: self._no_room,
            NodeCause.NO_ROOM_IN_A_MODE: self._no_room_in_a_mode,
            NodeCause.NO_ROOM_TOGETHER: self._no_room_together,
            NodeCause.NO_WAY_FOUND: self._no_way_found,
        }

    def of(self, nodes: Mapping[str, KnownNode]) -> dict[str, Refusal]:
        """Why each of these nodes does not take the pod."""
        found = self._causes.of([known.row for known in nodes.values()])
        of_nodes = zip(nodes.items(), found, strict=True)
        return {name: self._say(finding, known.lost) for (name, known), finding in of_nodes}

    def _say(self, found: Finding, lost: str) -> Refusal:
        if (said := self._said.get((found, lost))) is None:
            said = self._said[found, lost] = Refusal(cause=found.cause, why=self._made(found, lost))
        return said

    def _made(self, found: Finding, lost: str) -> str:
        """Most GPUs can be given: what is said of those that can't is empty."""
        if found.cause is NodeCause.NONE_GIVEN:
            return f"none of its GPUs can be given: {lost}" if lost else "it has no GPUs"
        return "; ".join(filter(None, (self._sentences[found.cause](found), lost)))

    # --- for good ----------------------------------------------------------------------------------------------------
    def _not_meant(self, found: Finding) -> str:
        return self._phrases.not_meant(found.counts)

    def _isolation(self, found: Finding) -> str:
        counts = found.counts
        takes = some(counts.taking, counts.meant, total=counts.total, which=MEANT, verbs=("takes", "take"))
        classes = self._phrases.classes(kind for kind, _ in found.kinds)
        return f"by their isolation {takes} what is {classes}{needed(self._causes.most) if counts.taking else ''}"

    def _context(self, found: Finding) -> str:
        """Where it takes most."""
        counts, most = found.counts, max(kind.context or 0 for kind, _ in found.kinds)
        those = {kind: count for kind, count in found.kinds if kind.context == most}
        which = "" if counts.taking == counts.total else f" {MEANT}"
        where = f"{most} MiB on {sum(those.values())} of {counted(counts.taking, 'GPU')}{which}"
        return self._phrases.too_thin(where, those) + needed(self._causes.most)

    def _too_small(self, found: Finding) -> str:
        counts, part = found.counts, found.part
        are = some(found.of_part.large, counts.allowed, total=counts.total, which=ALLOWED, verbs=("is", "are"))
        return f"{are} large enough for {self._phrases.size(part.piece)}{needed(part.needed)}"

    def _no_shared_mode(self, found: Finding) -> str:
        return f"{self._phrases.in_modes(found)} are large enough"

    def _not_together(self, found: Finding) -> str:
        room = found.fill.staying
        return f"{self._phrases.so_many(room)} {agreed(room, 'finds', 'find')} room even on an empty node"

    def _init_stuck(self, found: Finding) -> str:
        where = self._phrases.no_room_where(found.fill)
        return f"its init container {found.fill.stuck} finds no room{where}, even on an empty node"

    # --- for now -----------------------------------------------------------------------------------------------------
    def _no_room(self, found: Finding) -> str:
        """Too few have both: what is true of each alone, too."""
        piece, counts, (_, roomy, free, both) = found.part.piece, found.counts, found.of_part
        first = some(free, counts.allowed, total=counts.total, which=ALLOWED)
        first = f"{first} {compute(piece, single=1 in (free, counts.allowed))}"
        if (of_memory := memory(piece)) and both:
            first += f", {both} {have(both)} also {of_memory}"
        elif of_memory and free:
            first += f", but not {of_memory}" if free == 1 else f", none has also {of_memory}"
        elif of_memory:
            first += f", {roomy} {have(roomy)} {of_memory}" if roomy else f", none has {of_memory} either"
        return first + needed(found.part.needed)

    def _no_room_in_a_mode(self, found: Finding) -> str:
        return f"{self._phrases.in_modes(found)} have room"

    def _no_way_found(self, _: Finding) -> str:
        count = len(self._causes.request.containers)
        return f"nobody is on its GPUs, and of the many ways to lay {count} containers on them none was found in time"

    def _no_room_together(self, _: Finding) -> str:
        count = len(self._causes.request.containers)
        return f"its GPUs have room for one container, not for all {count} of the pod together"
