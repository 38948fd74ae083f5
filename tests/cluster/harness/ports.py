"""Ports that are free now and will still be free when the component binds them."""

from __future__ import annotations

import atexit
import contextlib

from aliquot_standalone.ports import any_port

# To the end of this process: components end and start again.
_kept = contextlib.ExitStack()
atexit.register(_kept.close)


def free_port() -> int:
    """Return a loopback port that nobody listens on and that nobody else is given, here or in another test run."""
    return any_port(keep=_kept.enter_context)
