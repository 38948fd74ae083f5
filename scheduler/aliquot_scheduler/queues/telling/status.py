"""What the leader writes of a queue, for people and for whoever leads next.

`used` is what its pods hold, `borrowed` what of that lies beyond its guarantee, `fairShare` what it is due of all there
is by what everybody asks now, `asked` and `waiting` what waits in it and how many pods, `lately` its decayed usage
beyond its guarantee. An inner queue has the sums of those below it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


class _Written(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Common settings of what is written into a status."""


class Amounts(_Written, frozen=True, kw_only=True):
    """Percent of GPUs, and MiB of their memory."""

    compute: int = 0
    memory: int = 0


class QueueStatus(_Written, frozen=True, kw_only=True):
    """The status of a Queue."""

    used: Amounts = Amounts()
    borrowed: Amounts = Amounts()
    fair_share: Amounts = Amounts()
    asked: Amounts = Amounts()
    waiting: int = 0
    lately: Amounts = Amounts()
    # The same of the queue's users, of those who used most.
    users: dict[str, Amounts] = {}
    # What is wrong with the queue: what the webhook would have refused, and more kept idle than there is.
    problems: tuple[str, ...] = ()
    # When this was worked out, as Kubernetes writes instants.
    at: str = ""


def read_status(raw: Mapping[str, Any]) -> QueueStatus | None:
    """A status as it was written; None if nobody has written one, or not this version of us."""
    if not raw:
        return None
    try:
        return msgspec.convert(raw, QueueStatus)
    except msgspec.ValidationError:
        # Another version wrote it in another way: what it says is worked out anew by whoever leads.
        return None
