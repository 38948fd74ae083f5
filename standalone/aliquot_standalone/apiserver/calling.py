"""Calls webhooks over HTTP(S). The only part of admission that does I/O."""

from __future__ import annotations

import base64
import binascii
import ssl
from functools import lru_cache
from typing import TYPE_CHECKING

import aiohttp

from .consulting import Endpoint, WebhookCall, WebhookResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from .consulting import Service

# As large as the objects themselves: a patch may hold one.
_MOST_ANSWER = 3 * 1024 * 1024
Address = tuple[str, int]


class _TroubleError(Exception):
    """A call that came to nothing."""


class HttpWebhookCaller:
    """Calls webhooks by URL, or where their Service is on this machine."""

    def __init__(self, *, find: Callable[[Service], Address | None] | None = None) -> None:
        """`find` says where a Service is: there is no cluster network."""
        self._find = find or (lambda _: None)
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Hang up."""
        if self._session is not None:
            await self._session.close()

    async def call(self, call: WebhookCall) -> WebhookResult:
        """Ask, and wait at most as long as the call allows."""
        try:
            return WebhookResult(body=await self._ask(call))
        except TimeoutError:
            return WebhookResult(trouble=f"context deadline exceeded after {call.timeout:g} s")
        except (aiohttp.ClientError, OSError, _TroubleError) as error:
            return WebhookResult(trouble=str(error) or type(error).__name__)

    async def _ask(self, call: WebhookCall) -> bytes:
        url, name = self._where(call.endpoint)
        if self._session is None:
            self._session = aiohttp.ClientSession()
        async with self._session.post(
            url,
            data=call.body,
            headers={"Content-Type": "application/json", "Accept": "application/json"},
            timeout=aiohttp.ClientTimeout(total=call.timeout),
            ssl=_trust(call.endpoint.ca_bundle) if url.startswith("https:") else False,
            server_hostname=name or None,
            allow_redirects=False,
        ) as response:
            body = b""
            async for part in response.content.iter_any():
                body += part
                if len(body) > _MOST_ANSWER:
                    raise _TroubleError("the answer is too long")
            if response.status != 200:  # noqa: PLR2004 - HTTP's OK
                raise _TroubleError(f"the server answered {response.status}: {body[:200].decode(errors='replace')}")
            return body

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
def _trust(bundle: str) -> ssl.SSLContext:
    """Trust those whom a configuration names, or whom the machine trusts."""
    if not bundle:
        return ssl.create_default_context()
    try:
        return ssl.create_default_context(cadata=base64.b64decode(bundle, validate=True).decode())
    except (binascii.Error, UnicodeDecodeError, ssl.SSLError) as error:
        raise _TroubleError(f"caBundle is no certificate: {error}") from error
