"""Ports that are free now and will still be free when the component binds them."""

from __future__ import annotations

import random
import socket

# Below the kernel's range for outgoing connections (32768 on), so no client of ours takes the port in between.
CHOICE = range(20_000, 32_000)

# Not of `random` itself, which each test begins anew: of two test runs at one time both would take the same port.
_CHANCE = random.SystemRandom()
_given: set[int] = set()


def free_port() -> int:
    """Return a loopback port that nobody listens on and that was not given out before."""
    for _ in range(1_000):
        port = _CHANCE.choice(CHOICE)
        if port not in _given and _can_bind(port):
            _given.add(port)
            return port
    raise OSError(f"no free port between {CHOICE.start} and {CHOICE.stop}")


def _can_bind(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
