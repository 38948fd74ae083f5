"""Bodies in Kubernetes' protobuf, as `kubectl create namespace` and its like send them; read only, answered as JSON.

Only what kubectl makes out of its flags is known (`protobuf_fields`): it has no other way to say these few things, and
sends files as JSON. Pure.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from .failures import bad_request, unsupported_media_type
from .protobuf_fields import KINDS, MESSAGES, Field

PROTOBUF = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\0"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIZES = {_FIXED64: 8, _FIXED32: 4}
_SIGNED = 1 << 63
_LONGEST_VARINT = 10
_ENTRY_KEY, _ENTRY_VALUE = 1, 2


class _BrokenError(Exception):
    """The bytes are no protobuf."""


def read_protobuf(body: bytes) -> Any:
    """An object, as JSON would have it."""
    if not body.startswith(_MAGIC):
        raise bad_request("the body is no protobuf of Kubernetes': it does not begin as such")
    try:
        whole = _message(body[len(_MAGIC) :], "Unknown")
        named = whole.get("typeMeta", {})
        kind = named.get("kind", "")
        if kind not in KINDS:
            raise unsupported_media_type(f"{kind or 'this kind'} is not taken as protobuf here: send JSON or YAML")
        return {**named, **_message(base64.b64decode(whole.get("raw", "")), kind)}
    except (_BrokenError, UnicodeDecodeError) as error:
        raise bad_request(f"the body is no protobuf: {error}") from error


def _message(data: bytes, kind: str) -> dict[str, Any]:
    known = MESSAGES[kind]
    found: dict[str, Any] = {}
    for number, raw in _pairs(data):
        field = known.get(number)
        if field is None:
            raise unsupported_media_type(
                f"field {number} of {kind} is not taken as protobuf here: send JSON or YAML, "
                "as `kubectl apply -f` and `kubectl create -f` do"
            )
        if field.kind != "-":
            _put(found, field, raw)
    return found


def _put(found: dict[str, Any], field: Field, raw: int | bytes) -> None:
    form, kind = field.kind[0], field.kind.lstrip("*=")
    if form == "*":
        found.setdefault(field.name, []).append(_value(raw, kind))
    elif form == "=":
        entry = dict(_pairs(_bytes(raw)))
        key = _value(entry.get(_ENTRY_KEY, b""), "s")
        found.setdefault(field.name, {})[key] = _value(entry.get(_ENTRY_VALUE, b""), kind)
    elif (value := _value(raw, kind)) or kind not in {"s", "I"}:
        found[field.name] = value


def _value(raw: int | bytes, kind: str) -> Any:
    if kind in {"i", "I", "b"}:
        if not isinstance(raw, int):
            raise _BrokenError("a number is none")
        signed = raw - (1 << 64) if raw >= _SIGNED else raw
        return bool(raw) if kind == "b" else signed
    if kind == "s":
        return _bytes(raw).decode()
    if kind == "y":
        return base64.b64encode(_bytes(raw)).decode()
    message = _message(_bytes(raw), kind)
    return message.get("string", "0") if kind == "Quantity" else message


def _bytes(raw: int | bytes) -> bytes:
    if isinstance(raw, int):
        raise _BrokenError("a number stands where text should")
    return raw


def _pairs(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Each field's number and what it holds: a number, or bytes that are text or a message."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, form = tag >> 3, tag & 7
        if form == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if form == _BYTES:
            size, at = _varint(data, at)
        elif form in _SIZES:
            size = _SIZES[form]
        else:
            raise _BrokenError(f"there is no wire type {form}")
        if at + size > len(data):
            raise _BrokenError("it is cut off")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(_LONGEST_VARINT):
        if at + place >= len(data):
            raise _BrokenError("it is cut off")
        byte = data[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:  # noqa: PLR2004 - the highest bit says that there is more
            return value & ((1 << 64) - 1), at + place + 1
    raise _BrokenError("a number is too long")
