"""Ports on loopback: the one that was asked for, or any that is free."""

from __future__ import annotations

import socket

from aliquot_core.errors import ClusterError

LOOPBACK = "127.0.0.1"


class PortTakenError(ClusterError):
    """Somebody else listens there."""


def choose_port(wanted: int, *, insist: bool = False, flag: str = "") -> int:
    """The wanted port if it is free, else any other; `insist` has a taken one raise instead. 0 is any."""
    try:
        return _free(wanted)
    except OSError as error:
        if insist:
            remedy = f"name another one with {flag}, or 0 for any"
            raise PortTakenError(
                f"can't listen: {error.strerror}", where=f"{LOOPBACK}:{wanted}", remedy=remedy
            ) from error
    return _free(0)


def _free(port: int) -> int:
    with socket.socket() as probe:
        # As servers do: a port whose last connections are just closing is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((LOOPBACK, port))
        return int(probe.getsockname()[1])
