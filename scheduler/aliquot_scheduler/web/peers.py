"""Who may call: the names in the certificate of whoever is at the other end.

That the certificate was signed by the authority in the settings, is of today and is a client's, TLS has found out
before; what is judged here is whose it is.
"""

from __future__ import annotations

import ssl
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any

# What `ssl` makes of a peer's certificate; empty or None without one.
PeerCertificate = Mapping[str, Any] | None


def names_of(certificate: Mapping[str, Any]) -> Iterator[str]:
    """Its common names, then its alternative ones."""
    for part in certificate.get("subject", ()):
        for kind, value in part:
            if kind == "commonName":
                yield value
    for kind, value in certificate.get("subjectAltName", ()):
        if kind in {"DNS", "URI"}:
            yield value


# Reading a date takes as long as all the rest that is asked of a caller, and callers are few.
_seconds = lru_cache(maxsize=64)(ssl.cert_time_to_seconds)


def why_stranger(certificate: PeerCertificate, *, allowed: Collection[str], now: float) -> str:
    """Why this peer may not ask; empty if it may."""
    if not certificate:
        return "no client certificate"
    names = list(names_of(certificate))
    if not any(name in allowed for name in names):
        return f"the client certificate is of {', '.join(names)[:200] or 'nobody'}, which is not let in"
    # A connection may outlive the certificate that it was made with.
    if now >= _seconds(certificate["notAfter"]):
        return "the client certificate is out of date"
    return ""
