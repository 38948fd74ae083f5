"""Handshakes of TLS that failed: counted by what was wrong and told, since whoever fails is never heard of again.

A kube-scheduler whose certificate is out of date gets no further than this: nothing is bound, and nothing else here
would know of it.
"""

from __future__ import annotations

import logging
import ssl
from enum import StrEnum
from typing import Any

from prometheus_client import CollectorRegistry, Counter

from aliquot_core.clock import Clock

log = logging.getLogger(__name__)

# Whoever can reach the port can fail as often as they like.
TELL_EVERY = 10.0


class Wrong(StrEnum):
    """What was."""

    # The caller's certificate: out of date, or signed by nobody whom we trust.
    THEIR_CERTIFICATE = "their-certificate"
    # The caller says that ours is no good.
    OUR_CERTIFICATE = "our-certificate"
    # No TLS of our version, hung up, too slow: probes and scanners of ports too.
    NO_TLS = "no-tls"


class FailedHandshakes:
    """How many there were; the log has the first of each kind, and then one every ten seconds at most."""

    def __init__(self, *, registry: CollectorRegistry, clock: Clock) -> None:
        self._clock = clock
        text = "Connections on which TLS failed, by what was wrong; nobody was heard on them."
        counter = Counter("aliquot_centre_tls_failures", text, labelnames=("wrong",), registry=registry)
        # There from the start: a series that begins with its first event has no increase.
        self._counts = {wrong: counter.labels(wrong) for wrong in Wrong}
        self._tell_from: dict[Wrong, float] = {}

    def note(self, error: OSError, *, peer: Any) -> None:
        """One more, with whoever is at this address."""
        wrong, now = what_was_wrong(error), self._clock.monotonic()
        self._counts[wrong].inc()
        if now < self._tell_from.get(wrong, now):
            return
        self._tell_from[wrong] = now + TELL_EVERY
        # Whoever hangs up is nothing to wake anybody for.
        level = logging.DEBUG if wrong is Wrong.NO_TLS else logging.WARNING
        log.log(level, "a caller did not get through TLS: %s", error, extra={"peer": peer, "wrong": wrong})


def what_was_wrong(error: OSError) -> Wrong:
    """With a handshake that ended so."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return Wrong.THEIR_CERTIFICATE
    # "ALERT" is in what the other side says; one on certificates can be about ours only.
    reason = str(getattr(error, "reason", None) or "").upper()
    if "ALERT" in reason and any(word in reason for word in ("CERTIFICATE", "UNKNOWN_CA")):
        return Wrong.OUR_CERTIFICATE
    return Wrong.NO_TLS
