"""The files by which centre and scheduling loop know each other: made anew at each start, known to nobody else."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from aliquot_scheduler.certificates.issuing import DAY, Use, issue, make_authority
from aliquot_scheduler.certificates.settings import CENTRE, KUBE_SCHEDULER

# Longer than any machine stays up; they go with the process.
_LIFE = 3650 * DAY


class CentreFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Where they lie, as PEM."""

    authority: Path
    certificate: Path
    key: Path
    # What the scheduling loop shows to the extender.
    client_certificate: Path
    client_key: Path


def make_files(folder: Path, *, host: str, now: float) -> CentreFiles:
    """Make an authority, sign what both sides need, and forget its key."""
    authority = make_authority(name="aliquot up", now=now, life=_LIFE)
    server = issue(authority, name=CENTRE, hosts=[CENTRE, host], uses=[Use.SERVER, Use.CLIENT], now=now, life=_LIFE)
    client = issue(authority, name=KUBE_SCHEDULER, hosts=(), uses=[Use.CLIENT], now=now, life=_LIFE)
    contents: Mapping[str, bytes] = {
        "ca.crt": authority.certificate,
        "tls.crt": server.certificate,
        "tls.key": server.key,
        "client.crt": client.certificate,
        "client.key": client.key,
    }
    for name, content in contents.items():
        _write(folder / name, content)
    return CentreFiles(
        authority=folder / "ca.crt",
        certificate=folder / "tls.crt",
        key=folder / "tls.key",
        client_certificate=folder / "client.crt",
        client_key=folder / "client.key",
    )


def _write(path: Path, content: bytes) -> None:
    """Readable for nobody else from the first byte on."""
    path.unlink(missing_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(file, "wb") as stream:
        stream.write(content)
