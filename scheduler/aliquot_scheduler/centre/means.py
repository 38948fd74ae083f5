"""What everybody has who writes for the leader, for one term of leading; and how a write ends that was not done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from aliquot_core.backoff import Random
from aliquot_core.clock import Clock
from aliquot_core.names import Names
from aliquot_kube.client import KubeClient
from aliquot_kube.errors import ApiError
from aliquot_kube.leadership import NotLeadingError
from aliquot_scheduler.centre.long_turns import LongTurns
from aliquot_scheduler.centre.pod_events import PodEvents

NOT_WRITTEN: Final = (ApiError, NotLeadingError)


class Means(msgspec.Struct, frozen=True, kw_only=True):
    """The same for all of them."""

    client: KubeClient
    clock: Clock
    random: Random
    names: Names
    events: PodEvents
    long_turns: LongTurns
    # Why nothing may be decided at this instant: another leads, or what we know is old. Empty if it may.
    why_not: Callable[[], str]


def means_of(
    *, client: KubeClient, clock: Clock, random: Random, names: Names, instance: str, why_not: Callable[[], str]
) -> Means:
    """With Events in the name of this replica."""
    events = PodEvents(client=client, clock=clock, random=random, names=names, instance=instance)
    return Means(
        client=client,
        clock=clock,
        random=random,
        names=names,
        events=events,
        long_turns=LongTurns(clock=clock),
        why_not=why_not,
    )
