"""TLS of the centre: whom we are, whom we trust, both changing while connections live.

Theory of operation. A listening socket keeps the one context that it was opened with. `SSLContext.load_cert_chain` on
it again is a trap: of a certificate and key that don't belong together it takes the certificate, drops the old key and
only then raises, and no handshake works from there on (run: OpenSSL 3.0); and nothing can make it trust less. So the
context that listens holds nothing. At each hello it hands the connection over to the context in force, and a new one of
these is made, whole or not at all, when the files change.

What must always hold: a set of files that is not whole changes nothing; a session is not resumed, for that would
spare its client the check against the authorities that are trusted now.
"""

from __future__ import annotations

import hashlib
import logging
import os
import ssl
from collections.abc import Callable
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry, Gauge

from aliquot_core.clock import Clock
from aliquot_core.errors import ClusterError
from aliquot_core.settings import FilePath
from aliquot_scheduler.certificates.issuing import CertificateError, read_facts

log = logging.getLogger(__name__)


class TlsError(ClusterError):
    """Files that no server can be made of."""


class TlsFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Where they lie, as PEM; a mounted Secret changes them under our feet."""

    certificate: FilePath
    key: FilePath
    # Who may have signed the certificates of kube-schedulers and of the centre's replicas: one or several.
    authority: FilePath


class _InForce(msgspec.Struct, frozen=True, kw_only=True):
    server: ssl.SSLContext
    client: ssl.SSLContext
    # When our own certificate is out of date.
    ends: float


class Tls:
    """Contexts made of these files; `run` keeps them fresh."""

    def __init__(self, *, files: TlsFiles, clock: Clock, look_every: float) -> None:
        """Raises `TlsError` where there is nothing to begin with."""
        self._files = files
        self._clock = clock
        self._look_every = look_every
        self._seen = _digest(files)
        self._in_force = _made(files)
        self.listening = _bare(ssl.PROTOCOL_TLS_SERVER)
        # Clients may come without: the API server has no certificate for webhooks. Who needs one is judged by address.
        self.listening.verify_mode = ssl.CERT_OPTIONAL
        self.listening.sni_callback = self._hand_over
        self.changed: list[Callable[[], None]] = []

    def client(self) -> ssl.SSLContext:
        """What to connect to another replica with."""
        return self._in_force.client

    def observe(self, registry: CollectorRegistry) -> None:
        """Tell Prometheus when the certificate in use ends."""
        text = "When the certificate that the centre serves with is out of date."
        gauge = Gauge("aliquot_centre_certificate_expiry_timestamp_seconds", text, registry=registry)
        gauge.set_function(lambda: self._in_force.ends)

    def look(self) -> bool:
        """Take the files in if they changed; whether what is in force changed."""
        if (seen := _digest(self._files)) == self._seen:
            return False
        # What can't be used is told once, not at every look.
        self._seen = seen
        try:
            self._in_force = _made(self._files)
        except TlsError as error:
            log.error("the certificate in use stays: %s", error)  # noqa: TRY400 - the text says all
            return False
        log.info("a new certificate is in use", extra={"certificate": self._files.certificate})
        for tell in self.changed:
            tell()
        return True

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await self._clock.sleep(self._look_every)
            self.look()

    def _hand_over(self, connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _to: ssl.SSLContext) -> None:
        connection.context = self._in_force.server


def _digest(files: TlsFiles) -> bytes:
    """What lies there now; a file that can't be read is as good as any other content."""
    found = hashlib.sha256()
    for path in msgspec.structs.astuple(files):
        try:
            content = Path(path).read_bytes()
        except OSError as error:
            content = str(error).encode()
        found.update(hashlib.sha256(content).digest())
    return found.digest()


def _made(files: TlsFiles) -> _InForce:
    for path in msgspec.structs.astuple(files):
        if not os.access(path, os.R_OK):
            raise TlsError("can't be read", where=path, remedy=_REMEDY)  # ssl would not say which
    try:
        server, client = _filled(ssl.PROTOCOL_TLS_SERVER, files), _filled(ssl.PROTOCOL_TLS_CLIENT, files)
        ends = read_facts(Path(files.certificate).read_bytes()).ends
    except (OSError, ValueError, CertificateError) as error:  # ssl.SSLError is an OSError
        what = f"certificate, key and authority make no TLS: {error}"
        raise TlsError(what, where=files.certificate, remedy=_REMEDY) from error
    server.verify_mode = ssl.CERT_OPTIONAL
    return _InForce(server=server, client=client, ends=ends)


def _filled(protocol: int, files: TlsFiles) -> ssl.SSLContext:
    context = _bare(protocol)
    # A key that is locked would ask the terminal.
    context.load_cert_chain(files.certificate, files.key, password="")
    context.load_verify_locations(files.authority)
    return context


def _bare(protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    # 1.2 resumes sessions from a cache that Python can't turn off; all who call speak 1.3.
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0
    return context


_REMEDY = "mount the Secret that holds them, or let Aliquot make them"
