"""Wait for a condition, with a deadline: the only way the harness ever waits."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from cluster.harness.errors import WaitTimeoutError

T = TypeVar("T")

# On a quiet machine hardly anything takes ten seconds; whoever waits in vain has failed anyway.
PATIENCE_SECONDS = 90.0
POLL_SECONDS = 0.02  # a look costs well under a millisecond; starting a node takes 1,500


def wait_until(
    description: str,
    predicate: Callable[[], T | None],
    *,
    timeout: float,
    explain: Callable[[], str] = lambda: "",
    poll: float = POLL_SECONDS,
) -> T:
    """Return the predicate's first truthy answer; at the deadline, raise with the last answer and `explain()`."""
    deadline = time.monotonic() + timeout
    while True:
        answer = predicate()
        if answer:
            return answer
        if time.monotonic() > deadline:
            told = explain()
            raise WaitTimeoutError(
                f"waited {timeout:g} s for: {description}; last seen: {answer!r}" + (f"\n{told}" if told else "")
            )
        time.sleep(poll)
