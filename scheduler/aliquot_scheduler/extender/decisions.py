"""What the extender asks of whoever decides; kube-scheduler's wire and the network stay on this side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from aliquot_core.objects import Pod

# The best grade that a node can get; kube-scheduler documents 10, and 1.36 takes more. Its
# preferred affinity weighs up to 10,000 points in our profile, a grade ten.
BEST_GRADE = 900


class Filtered(msgspec.Struct, frozen=True, kw_only=True):
    """Which of the offered nodes will do, and why the others won't."""

    nodes: Sequence[str] = ()
    # Refused for now: evicting somebody there might help.
    failed: Mapping[str, str] = {}
    # Refused whatever is evicted.
    unresolvable: Mapping[str, str] = {}
    # Nothing could be decided; kube-scheduler tries again later.
    error: str = ""


class Decisions(Protocol):
    """One writer's decisions; all but `bind` at once, on the loop that calls."""

    def filter(self, pod: Pod, nodes: Sequence[str]) -> Filtered:
        """Which of these nodes have room."""
        ...

    def prioritize(self, pod: Pod, nodes: Sequence[str]) -> Sequence[int]:
        """How good each of these nodes is in turn, from 0 to `BEST_GRADE`."""
        ...

    def prioritize_plain(self, pod: Pod, nodes: Sequence[str]) -> Sequence[int]:
        """The same for a pod that asks for no slice; of others nothing is said here."""
        ...

    def preempt(self, pod: Pod, offered: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        """Of the victims that kube-scheduler would evict (uids by node), those that may be."""
        ...

    async def bind(self, *, namespace: str, name: str, uid: str, node: str) -> str:
        """Bind and grant in one write; empty, or why not."""
        ...
