"""Wait for a condition, with a deadline: the only way the harness ever waits."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from cluster.harness.errors import WaitTimeoutError

T = TypeVar("T")

# On a quiet machine hardly anything takes ten seconds; whoever waits in vain has failed anyway.
PATIENCE_SECONDS = 90.0
# A look takes a millisecond of ours and more of the API server's, and most waits are over within 0.4 s. Whoever has
# waited longer looks after a twentieth of that time: it is seen so much later at most, and 20 s are 130 looks, not
# 1,000.
POLL_SECONDS = 0.02
POLL_SHARE = 0.05
POLL_LONGEST_SECONDS = 0.25


def poll_after(waited: float) -> float:
    """How long to rest before the next look, in seconds, by how long it was waited."""
    return min(max(POLL_SECONDS, POLL_SHARE * waited), POLL_LONGEST_SECONDS)


def wait_until(
    description: str,
    predicate: Callable[[], T | None],
    *,
    timeout: float,
    explain: Callable[[], str] = lambda: "",
) -> T:
    """Return the predicate's first truthy answer; at the deadline, raise with the last answer and `explain()`."""
    begun = time.monotonic()
    while True:
        answer = predicate()
        if answer:
            return answer
        waited = time.monotonic() - begun
        if waited > timeout:
            told = explain()
            raise WaitTimeoutError(
                f"waited {timeout:g} s for: {description}; last seen: {answer!r}" + (f"\n{told}" if told else "")
            )
        time.sleep(poll_after(waited))
