"""Ports on loopback: the one that was asked for, or any that is free."""

from __future__ import annotations

import contextlib
import random
import socket

import msgspec

from aliquot_core.errors import ClusterError
from aliquot_standalone.settings import UpSettings

LOOPBACK = "127.0.0.1"
# Tried first, so that bookmarks and copied commands stay good.
API_PORT, PAGE_PORT = 10980, 10944
# Below the ports that systems give to outgoing connections (from 32,768 on), and below those that people know: some
# seconds pass until the process that is to listen has started, and one of them in the upper range may be gone by then.
_ANY = range(20_000, 32_768)
_TRIES = 64


class PortTakenError(ClusterError):
    """Somebody else listens there."""


class Ports(msgspec.Struct, frozen=True, kw_only=True):
    """Where one machine listens."""

    api: int
    centre: int
    page: int
    # Where simulated nodes tell what they use.
    usage: int


def choose_ports(settings: UpSettings) -> Ports:
    """Choose all three; one that was named in the settings is insisted on."""
    return Ports(
        api=_chosen(settings.port, usual=API_PORT, flag="--port"),
        centre=choose_port(0),
        usage=choose_port(0),
        page=_chosen(settings.page_port, usual=PAGE_PORT, flag="--page-port"),
    )


def choose_port(wanted: int, *, insist: bool = False, flag: str = "") -> int:
    """The wanted port if it is free, else any other; `insist` has a taken one raise instead. 0 is any."""
    if not wanted:
        return _any()
    try:
        return _free(wanted)
    except OSError as error:
        if insist:
            remedy = f"name another one with {flag}, or 0 for any"
            raise PortTakenError(
                f"can't listen: {error.strerror}", where=f"{LOOPBACK}:{wanted}", remedy=remedy
            ) from error
    return _any()


def _any() -> int:
    chance = random.SystemRandom()
    for _ in range(_TRIES):
        with contextlib.suppress(OSError):
            return _free(chance.choice(_ANY))
    return _free(0)


def _chosen(named: int | None, *, usual: int, flag: str) -> int:
    return choose_port(usual if named is None else named, insist=named is not None, flag=flag)


def _free(port: int) -> int:
    with socket.socket() as probe:
        # As servers do: a port whose last connections are just closing is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((LOOPBACK, port))
        return int(probe.getsockname()[1])
