"""Calls webhooks over HTTP(S). The only part of admission that does I/O."""

from __future__ import annotations

import base64
import binascii
import ssl
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from aliquot_standalone.posts import NobodyListensError, Place, Poster, PostError

from .consulting import Endpoint, WebhookCall, WebhookResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from aliquot_core.clock import Clock

    from .consulting import Service

# As large as the objects themselves: a patch may hold one.
_MOST_ANSWER = 3 * 1024 * 1024
Address = tuple[str, int]
_AGAIN = 0.05


class _TroubleError(Exception):
    """A call that came to nothing."""


class HttpWebhookCaller:
    """Calls webhooks by URL, or where their Service is on this machine."""

    def __init__(
        self,
        *,
        clock: Clock,
        find: Callable[[Service], Address | None] | None = None,
        awaited: Address | None = None,
        if_silent: str = "",
    ) -> None:
        """`find` says where a Service is: there is no cluster network.

        Who is `awaited` starts with this server, a second later, or again after a crash: whoever writes meanwhile
        waits for it as long as the webhook's own time allows, instead of being told that nobody listens. `if_silent`
        is what else is told whoever has waited for it in vain.
        """
        self._clock = clock
        self._find = find or (lambda _: None)
        self._awaited = awaited
        self._if_silent = if_silent
        # By place and the authority that is trusted there; of none in clear.
        self._posters: dict[tuple[Place, str | None], Poster] = {}

    async def close(self) -> None:
        """Hang up."""
        for poster in self._posters.values():
            await poster.close()

    async def call(self, call: WebhookCall) -> WebhookResult:
        """Ask, and wait at most as long as the call allows."""
        try:
            return WebhookResult(body=await self._ask(call))
        except TimeoutError:
            told = f"context deadline exceeded after {call.timeout:g} s"
            more = self._if_silent if self._is_awaited(call.endpoint) else ""
            return WebhookResult(trouble=f"{told}: {more}" if more else told)
        except (PostError, _TroubleError) as error:
            return WebhookResult(trouble=str(error) or type(error).__name__)

    async def _ask(self, call: WebhookCall) -> bytes:
        url, name = self._where(call.endpoint)
        scheme, host, port, path = _split(url)
        bundle = call.endpoint.ca_bundle if scheme == "https" else None
        key = (Place(host=host, port=port, server_name=name), bundle)
        poster = self._posters.get(key)
        if poster is None:
            trust = None if bundle is None else _trust(bundle)
            poster = self._posters[key] = Poster(key[0], trust=trust)
        until = self._clock.monotonic() + (call.timeout if self._is_awaited(call.endpoint) else 0)
        while True:
            try:
                return await poster.post(path, call.body, timeout=call.timeout, most=_MOST_ANSWER)
            except NobodyListensError:
                if self._clock.monotonic() + _AGAIN > until:
                    raise
            await self._clock.sleep(_AGAIN)

    def _is_awaited(self, endpoint: Endpoint) -> bool:
        return self._awaited is not None and _split(self._where(endpoint)[0])[1:3] == self._awaited

    def _where(self, endpoint: Endpoint) -> tuple[str, str]:
        """Give the URL, and the name that the certificate must have where the URL does not say it."""
        service = endpoint.service
        if service is None:
            return endpoint.url, ""
        found = self._find(service)
        if found is None:
            raise _TroubleError(f'service "{service.name}" of namespace "{service.namespace}" is nowhere here')
        host, port = found
        return f"https://{host}:{port}/{service.path.lstrip('/')}", f"{service.name}.{service.namespace}.svc"


@lru_cache(maxsize=32)
def _split(url: str) -> tuple[str, str, int, str]:
    """Give scheme, host, port and path with query."""
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise _TroubleError(f"the url can't be read: {error}") from error
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise _TroubleError(f"the url names no server: {url}")
    path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~") + (f"?{parts.query}" if parts.query else "")
    return parts.scheme, parts.hostname, port, path


@lru_cache(maxsize=32)
def _trust(bundle: str) -> ssl.SSLContext:
    """Trust those whom a configuration names, or whom the machine trusts."""
    if not bundle:
        return ssl.create_default_context()
    try:
        return ssl.create_default_context(cadata=base64.b64decode(bundle, validate=True).decode())
    except (binascii.Error, UnicodeDecodeError, ssl.SSLError) as error:
        raise _TroubleError(f"caBundle is no certificate: {error}") from error
