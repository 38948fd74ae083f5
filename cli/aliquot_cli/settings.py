"""What a user may set about the commands for people."""

from __future__ import annotations

from typing import Annotated

import msgspec


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Section `[run]`."""

    # What a run gets that asks for neither compute nor memory, in percent of a GPU.
    compute: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 10
