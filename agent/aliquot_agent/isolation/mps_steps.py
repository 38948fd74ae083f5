"""What the keeper of MPS daemons does next for one GPU, by what is wanted and what it sees. Pure.

There is no memory here: each step is chosen by looking, so that a keeper that was killed at any instant, a driver that
was reloaded and somebody's own `nvidia-smi -c` all lead back to what is wanted.

What must hold: a daemon is started only where the compute mode lets nobody else in, else programs would run beside MPS
without its limits; the mode is opened again only when the daemon is gone, else its clients would be joined by programs
that it does not see; a GPU is called shared only when its daemon has answered.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from aliquot_agent.isolation.gpu_modes import Told, Use


class Daemon(StrEnum):
    """A GPU's control daemon."""

    GONE = "gone"
    SILENT = "silent"  # a process is there and does not answer
    ANSWERS = "answers"


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU as it was found: `closed` is a compute mode that takes one process only."""

    closed: bool
    daemon: Daemon
    # Servers that can take no client until the last one they have is gone.
    faulty: int = 0
    clients: int = 0
    servers: tuple[int, ...] = ()


class Step(StrEnum):
    """One thing to do, after which it is looked again."""

    CLOSE = "close"  # let only one process in: the server
    OPEN = "open"
    START = "start"
    QUIT = "quit"
    KILL = "kill"
    REST = "rest"


def next_step(wanted: Use, seen: Seen) -> Step:
    """The one thing to do now."""
    if seen.daemon is Daemon.SILENT:
        return Step.KILL
    if wanted is Use.SHARED:
        if not seen.closed:
            return Step.CLOSE
        return Step.START if seen.daemon is Daemon.GONE else Step.REST
    if seen.daemon is Daemon.ANSWERS:
        return Step.QUIT
    return Step.OPEN if seen.closed else Step.REST


def told(wanted: Use, seen: Seen, *, most_clients: int) -> Told:
    """What to say of a GPU for which nothing is left to do."""
    fault = wanted is Use.SHARED and seen.faulty > 0
    return Told(
        use=wanted,
        problem="a program's fault has stopped its MPS server until all who used it have ended" if fault else "",
        clients=seen.clients,
        most_clients=most_clients if wanted is Use.SHARED else 0,
        servers=seen.servers,
    )
