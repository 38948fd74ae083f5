"""The lines of a journal: a checksum each, then JSON of what has changed. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from aliquot_core.errors import UserError

from .store import Revision, Store

if TYPE_CHECKING:
    from .store import Change

_FORM = 1
_CHECKSUM = 9
_encode = msgspec.json.encode


class UnknownJournalError(UserError):
    """The file was written by something else."""


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    form: int
    version: int


class _Record(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    v: int
    t: str
    k: str
    f: dict[str, str] = {}
    # Absent: deleted.
    o: msgspec.Raw = msgspec.Raw()


_decode_head = msgspec.json.Decoder(_Head).decode
_decode_record = msgspec.json.Decoder(_Record).decode


def first_line(version: int) -> bytes:
    """What a journal begins with."""
    return _line(_encode(_Head(form=_FORM, version=version)))


def change_line(table: str, change: Change) -> bytes:
    """One change."""
    revision = change.revision
    head = _encode({"v": change.version, "t": table, "k": revision.key})
    if change.type == "DELETED":
        return _line(head)
    return _line(b'%s,"f":%s,"o":%s}' % (head[:-1], _encode(dict(revision.fields)), revision.raw))


def _line(payload: bytes) -> bytes:
    return b"%08x %s\n" % (zlib.crc32(payload), payload)


def payload_of(line: bytes) -> bytes | None:
    """What a line says; None of one that is not whole."""
    payload = line[_CHECKSUM:-1]
    return payload if line == _line(payload) else None


def version_at_head(payload: bytes, *, where: str) -> int:
    """The version with which a journal begins."""
    try:
        head = _decode_head(payload)
    except msgspec.MsgspecError as error:
        raise UnknownJournalError(f"its head can't be read: {error}", where=where, remedy="move it away") from error
    if head.form != _FORM:
        remedy = "use the version of Aliquot that wrote it, or move it away"
        raise UnknownJournalError(f"its form is {head.form}, not {_FORM}", where=where, remedy=remedy)
    return head.version


def restore(store: Store, payload: bytes) -> None:
    """Bring a store one change further."""
    record = _decode_record(payload)
    raw = bytes(record.o)
    if not raw:
        store.forget(record.t, record.k, version=record.v)
        return
    labels: dict[str, Any] = _decode_labels(raw).metadata.labels
    store.restore(record.t, Revision(key=record.k, version=record.v, raw=raw, labels=labels, fields=record.f))


class _Labels(msgspec.Struct):
    labels: dict[str, str] = {}


class _Labelled(msgspec.Struct):
    metadata: _Labels


_decode_labels = msgspec.json.Decoder(_Labelled).decode


def whole(store: Store) -> Iterator[bytes]:
    """All lines of a journal that holds only what is alive."""
    yield first_line(store.version)
    for table, revision in store.everything():
        head = _encode({"v": revision.version, "t": table, "k": revision.key, "f": dict(revision.fields)})
        yield _line(b'%s,"o":%s}' % (head[:-1], revision.raw))
