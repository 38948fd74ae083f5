"""Ports on loopback: the one that was asked for, or any that is free, kept until whoever is to have it listens.

Some seconds pass until that process has started, and it may end and start again. All the while a socket of ours is
bound to its port, without listening: who looks for any free port does not get that one, and who was given it can listen
there all the same, as servers may (SO_REUSEADDR) where nobody listens yet.
"""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Callable

import msgspec

from aliquot_core.errors import ClusterError
from aliquot_standalone.settings import UpSettings

LOOPBACK = "127.0.0.1"
# Tried first, so that bookmarks and copied commands stay good.
API_PORT, PAGE_PORT = 10980, 10944
# Below the ports that systems give to outgoing connections (from 32,768 on), which may take one that is bound by nobody
# who listens, and above those that people know.
_ANY = range(20_000, 32_768)
_TRIES = 64

# Takes what is to be closed when the port is not needed any more, as `ExitStack.enter_context` does.
Keep = Callable[[socket.socket], object]


class PortTakenError(ClusterError):
    """Somebody else listens there."""


class Ports(msgspec.Struct, frozen=True, kw_only=True):
    """Where one machine listens."""

    api: int
    centre: int
    page: int
    # Where simulated nodes tell what they use.
    usage: int


def choose_ports(settings: UpSettings, *, keep: Keep) -> Ports:
    """Choose all four; one that was named in the settings is insisted on."""
    return Ports(
        api=_chosen(settings.port, usual=API_PORT, flag="--port", keep=keep),
        centre=any_port(keep=keep),
        usage=any_port(keep=keep),
        page=_chosen(settings.page_port, usual=PAGE_PORT, flag="--page-port", keep=keep),
    )


def choose_port(wanted: int, *, keep: Keep, insist: bool = False, flag: str = "") -> int:
    """The wanted port if it is free, else any other; `insist` has a taken one raise instead. 0 is any."""
    if not wanted:
        return any_port(keep=keep)
    try:
        return _taken(wanted, keep=keep, closing=True)
    except OSError as error:
        if insist:
            remedy = f"name another one with {flag}, or 0 for any"
            raise PortTakenError(
                f"can't listen: {error.strerror}", where=f"{LOOPBACK}:{wanted}", remedy=remedy
            ) from error
    return any_port(keep=keep)


def any_port(*, keep: Keep) -> int:
    """A port that nobody has, and nobody else is given by this while it is kept."""
    chance = random.SystemRandom()
    for _ in range(_TRIES):
        with contextlib.suppress(OSError):
            return _taken(chance.choice(_ANY), keep=keep)
    return _taken(0, keep=keep)


def _chosen(named: int | None, *, usual: int, flag: str, keep: Keep) -> int:
    return choose_port(usual if named is None else named, insist=named is not None, flag=flag, keep=keep)


def _taken(port: int, *, keep: Keep, closing: bool = False) -> int:
    """Take a port that nobody has; `closing` has one do whose last connections are just closing, or that is kept."""
    with contextlib.ExitStack() as stack:
        holder = stack.enter_context(socket.socket())
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, closing)
        holder.bind((LOOPBACK, port))
        # From now on whoever was told of it may listen.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stack.pop_all()
        keep(holder)
    return int(holder.getsockname()[1])
