"""A call and what is replied to it, whichever way it came by."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any

import msgspec

JSON = "application/json"


class Call(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What was asked; `hop` is the replica that passed it on, if one did."""

    path: str
    body: bytes
    hop: str = ""


class Reply(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What goes back."""

    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = JSON


# At once, or when it is known.
Replied = Reply | Coroutine[Any, Any, Reply]
Replying = Callable[[Call], Replied]
# Why whoever is at the other end may not ask; empty for those who may.
Stranger = Callable[[asyncio.BaseTransport | None], str]


class Offered(msgspec.Struct, frozen=True, kw_only=True):
    """Calls that may come the short way: who replies at which address, to whom, and to how large ones."""

    replies: dict[str, Replying]
    stranger: Stranger
    largest: int


NOTHING_OFFERED = Offered(replies={}, stranger=lambda _: "nobody is let in here", largest=0)


def refusal(status: HTTPStatus, why: str) -> Reply:
    """By HTTP's own means, with a sentence for whoever looks."""
    return Reply(body=msgspec.json.encode({"error": why}), status=status)
