"""How a pure server asks somebody outside: a verb that must call webhooks is a generator that yields the calls.

Whoever drives it makes the calls and sends the results in; the verb goes on where it was. It holds nothing meanwhile:
what it has read before a call it reads again after, so a slow webhook delays its own caller and nobody else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from typing import Protocol, TypeVar

import msgspec

T = TypeVar("T")


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """Where a webhook is, as a cluster names it."""

    namespace: str
    name: str
    path: str = ""
    port: int = 443


class Endpoint(msgspec.Struct, frozen=True, kw_only=True, rename={"ca_bundle": "caBundle"}):
    """Where a webhook is, and who has signed its certificate (base64 of PEM)."""

    url: str = ""
    service: Service | None = None
    ca_bundle: str = ""


class WebhookCall(msgspec.Struct, frozen=True, kw_only=True):
    """One question to one webhook."""

    webhook: str
    endpoint: Endpoint
    body: bytes
    timeout: float


class WebhookResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came back, or why nothing did."""

    body: bytes = b""
    trouble: str = ""


Asking = Generator[tuple[WebhookCall, ...], Sequence[WebhookResult], T]


class WebhookCaller(Protocol):
    """Makes calls; never raises for what may go wrong on the way."""

    async def call(self, call: WebhookCall) -> WebhookResult:
        """Ask, and wait at most as long as the call allows."""
        ...


_NOBODY = WebhookResult(trouble="nothing here calls webhooks")


def answered_by_nobody(verb: Asking[T]) -> T:
    """Carry out a verb where no webhook can be called: each call fails."""
    try:
        calls = next(verb)
        while True:
            calls = verb.send([_NOBODY for _ in calls])
    except StopIteration as end:
        result: T = end.value
        return result


class Nobody:
    """Where no webhook can be called."""

    async def call(self, call: WebhookCall) -> WebhookResult:  # noqa: ARG002 - a caller's signature
        """Fail."""
        return _NOBODY


async def answered_by(caller: WebhookCaller, verb: Asking[T]) -> T:
    """Carry out a verb; the calls of one step are made at once."""
    try:
        calls = next(verb)
        while True:
            if len(calls) == 1:
                results = [await caller.call(calls[0])]
            else:
                results = list(await asyncio.gather(*(caller.call(one) for one in calls)))
            calls = verb.send(results)
    except StopIteration as end:
        result: T = end.value
        return result
