"""Whether a GPU of a node with MPS is free, shared through a daemon, or one container's alone. Pure.

MPS needs a control daemon for the GPU and a compute mode that lets nobody but its server in; who has the GPU at 100 %
needs neither. To change that under a process ends it: the daemon's clients lose their contexts, and a program that is
on the GPU without MPS keeps the server from starting. So:

- a mode is left only when nobody holds the GPU in it: no container that was let start, nor what is left of one;
- an empty GPU goes to who came first of those that are bound to the node; an empty one that nobody wants is free, and
  its daemon is ended: the next ones get a daemon that remembers nothing, no fault either;
- a container is let start when the GPU is in its mode and whoever keeps the daemons has said so; else it waits.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum

import msgspec

from aliquot_core.claims import Claim


class Use(StrEnum):
    """How a GPU is used; also what the keeper of the daemons is asked for."""

    FREE = "free"
    SHARED = "shared"
    EXCLUSIVE = "exclusive"


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What the keeper says of one GPU: the mode it has brought it into, or what is in the way."""

    use: Use
    problem: str = ""
    # Processes that use the daemon now, and how many it takes.
    clients: int = 0
    most_clients: int = 0
    # The processes of MPS itself, by the node's own ids.
    servers: tuple[int, ...] = ()


class Seat(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU as it stands: what was asked for, and what the keeper says of it, if it is there."""

    wanted: Use
    told: Told | None = None
    kept: bool = True


def use_of(claim: Claim) -> Use:
    """The mode that who claims so much of a GPU needs."""
    return Use.EXCLUSIVE if claim.closes else Use.SHARED


def next_use(now: Use, *, held: Collection[Use], coming: Sequence[Use]) -> Use:
    """The mode to ask for: `held` by those that were let start, `coming` are those bound, the first before the rest."""
    if held:
        # Only an agent that lost its notes can find a holder in another mode than it remembers.
        return now if now in held else min(held)
    return coming[0] if coming else Use.FREE


def hindrance(seat: Seat, *, use: Use) -> str:
    """Why a container that needs this mode can't start now; empty if it can."""
    if seat.wanted is not use:
        return f"it is {seat.wanted}, and {use} only once nobody holds it so"
    if not seat.kept:
        return "the process that keeps MPS daemons does not run"
    told = seat.told
    if told is not None and told.problem:
        return told.problem
    if told is None or told.use is not use:
        return f"it is being made {use}"
    if use is Use.SHARED and told.clients >= told.most_clients > 0:
        return f"its MPS daemon has {told.clients} processes, as many as it takes"
    return ""
