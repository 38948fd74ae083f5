"""While a simulation runs, nobody may touch real time, real luck, threads or sockets."""

from __future__ import annotations

import os
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from simulation.universe.loop import OutsideError

_OURS = ("aliquot_", "simulation.")


@contextmanager
def no_outside() -> Iterator[None]:
    """Let whoever of ours reaches outside be told by an `OutsideError`; the logging of others may look at the clock."""
    with ExitStack() as stack:
        for module, name in (
            (time, "time"),
            (time, "monotonic"),
            (time, "perf_counter"),
            (time, "sleep"),
            (os, "urandom"),
            (random, "random"),
            (random, "uniform"),
            (random, "choice"),
        ):
            stack.enter_context(mock.patch.object(module, name, _for_others(module, name)))
        for owner, name in ((threading.Thread, "start"), (socket.socket, "connect"), (socket.socket, "bind")):
            stack.enter_context(mock.patch.object(owner, name, _for_nobody(name)))
        yield


def _for_others(module: Any, name: str) -> Callable[..., Any]:
    real = getattr(module, name)

    def asked(*args: Any, **kwargs: Any) -> Any:
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if caller.startswith(_OURS):
            raise OutsideError(f"{caller} asked for {module.__name__}.{name}")
        return real(*args, **kwargs)

    return asked


def _for_nobody(name: str) -> Callable[..., Any]:
    def asked(*_: Any, **__: Any) -> Any:
        raise OutsideError(f"{name} of a thread or a socket was called")

    return asked
