"""What the webhook says of a pod or a queue: what forbids it, and what its author should know."""

from __future__ import annotations

import msgspec

from aliquot_core.errors import AliquotError, UserError


class AdmissionError(UserError):
    """What can't be taken in as written."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Where there are problems it is refused; warnings are told in any case."""

    problems: tuple[AliquotError, ...] = ()
    warnings: tuple[str, ...] = ()
