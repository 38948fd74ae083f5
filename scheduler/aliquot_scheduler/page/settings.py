"""What an operator can set of the page."""

from __future__ import annotations

from typing import Annotated

import msgspec

from aliquot_core.settings import Seconds


class PageSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[page]`."""

    serve: bool = True
    # How often whoever looks is told what has changed.
    every: Seconds = 1.0
    # Addresses of metrics that tell what is used: agents' own, or a Prometheus' /federate of all of them.
    usage: tuple[str, ...] = ()
    usage_every: Seconds = 5.0
    # Names in the address bar, beside those of loopback: a page that is served without login answers to no others.
    hosts: tuple[str, ...] = ()
    # How many may look at the same time; each keeps a connection.
    readers: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 64
    # A point of the history so often, for so many points: six hours.
    sample: Seconds = 10.0
    samples: Annotated[int, msgspec.Meta(ge=10, le=100_000)] = 2160
    # The file in which they are kept over a restart; empty: they go with the leader.
    history: str = ""
