"""What the webhook says of a pod or a queue: what forbids it, and what its author should know."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from aliquot_core.errors import AliquotError, UserError

# How many names a sentence lists.
NAMED = 8


class AdmissionError(UserError):
    """What can't be taken in as written."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Where there are problems it is refused; warnings are told in any case."""

    problems: tuple[AliquotError, ...] = ()
    warnings: tuple[str, ...] = ()


def listed(names: Sequence[str]) -> str:
    """Some names of many, as people read them."""
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
