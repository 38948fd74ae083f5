"""How the embedded API server reaches webhooks: by URL or Service, over TLS, within their time."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from aliquot_kube.clock import SystemClock
from aliquot_standalone.apiserver.calling import HttpWebhookCaller
from aliquot_standalone.apiserver.consulting import Endpoint, Service, WebhookCall
from support.http_api import LONG_S
from support.scripted_webhook import LOOPBACK, ScriptedWebhook, allowing, scripted_webhook

BODY = b'{"request": {"uid": "u", "name": "one"}}'


@pytest.fixture
def webhook(tmp_path: Path) -> Iterator[ScriptedWebhook]:
    """One that answers."""
    with scripted_webhook(tmp_path) as webhook:
        yield webhook


@pytest.fixture
async def caller(webhook: ScriptedWebhook) -> AsyncIterator[HttpWebhookCaller]:
    """One who knows where the Service `hook` is."""

    def find(service: Service) -> tuple[str, int] | None:
        return (LOOPBACK, webhook.port) if service.name != "nowhere" else None

    caller = HttpWebhookCaller(clock=SystemClock(), find=find)
    yield caller
    await caller.close()


def call(
    webhook: ScriptedWebhook, *, service: str = "", timeout: float = LONG_S, bundle: str | None = None
) -> WebhookCall:
    """A question by URL, or to a Service of the namespace `home`."""
    config = webhook.client_config("path")
    trusted = config["caBundle"] if bundle is None else bundle
    if service:
        place = Service(namespace="home", name=service, path="/path")
        endpoint = Endpoint(service=place, ca_bundle=trusted)
    else:
        endpoint = Endpoint(url=config["url"], ca_bundle=trusted)
    return WebhookCall(webhook="w", endpoint=endpoint, body=BODY, timeout=timeout)


@pytest.mark.parametrize("service", ["", "hook"])
async def test_it_is_asked_by_url_or_service(webhook: ScriptedWebhook, caller: HttpWebhookCaller, service: str) -> None:
    """A Service is found on this machine, and must show its own name."""
    result = await caller.call(call(webhook, service=service))
    assert (result.trouble, b'"allowed": true' in result.body) == ("", True)
    assert webhook.names("one") == ["path"]


@pytest.mark.parametrize(
    ("service", "bundle", "trouble"),
    [
        ("other", None, "certificate"),
        ("nowhere", None, "is nowhere here"),
        ("", "", "certificate"),
        ("", "bm9uZQ==", "caBundle is no certificate"),
    ],
)
async def test_who_can_not_be_trusted_is_not_asked(
    webhook: ScriptedWebhook, caller: HttpWebhookCaller, service: str, bundle: str | None, trouble: str
) -> None:
    """Another name, another authority, no authority at all: it is said, and nothing is sent."""
    result = await caller.call(call(webhook, service=service, bundle=bundle))
    assert trouble in result.trouble
    assert webhook.asked == []


async def test_one_that_does_not_answer_is_given_up(webhook: ScriptedWebhook, caller: HttpWebhookCaller) -> None:
    """After the time that its configuration allows."""
    over = threading.Event()

    def wait(_: object) -> dict[str, object]:
        over.wait(LONG_S)
        return allowing()

    webhook.scripts["path"] = wait
    result = await caller.call(call(webhook, timeout=0.3))
    over.set()
    assert "deadline exceeded" in result.trouble


async def test_whom_all_rest_upon_is_named_where_it_does_not_answer(webhook: ScriptedWebhook) -> None:
    """With what to look at; of others the time alone is told."""
    over = threading.Event()

    def wait(_: object) -> dict[str, object]:
        over.wait(LONG_S)
        return allowing()

    webhook.scripts["path"] = wait
    for awaited, trouble in (
        (webhook.port, "deadline exceeded after 0.3 s: read the log"),
        (1, "exceeded after 0.3 s"),
    ):
        caller = HttpWebhookCaller(clock=SystemClock(), awaited=(LOOPBACK, awaited), if_silent="read the log")
        assert (await caller.call(call(webhook, timeout=0.3))).trouble.endswith(trouble)
        await caller.close()
    over.set()


class Starting(SystemClock):
    """Somebody who has a port, and listens there while the caller sleeps for the second time, or never."""

    def __init__(self, *, ever: bool) -> None:
        self._ever = ever
        self._socket = socket.socket()
        self._socket.bind((LOOPBACK, 0))
        self._server: asyncio.Server | None = None
        self._left = asyncio.Event()
        self._slept = 0.0
        self.sleeps = 0

    @property
    def address(self) -> tuple[str, int]:
        """Where."""
        return LOOPBACK, self._socket.getsockname()[1]

    def monotonic(self) -> float:
        """Nothing but sleep takes time."""
        return self._slept

    async def sleep(self, seconds: float) -> None:
        """Take no time."""
        self._slept += seconds
        self.sleeps += 1
        if self._ever and self.sleeps == 2:
            self._server = await asyncio.start_server(self._answer, sock=self._socket)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(BODY)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nyes!")
        await reader.read()
        writer.close()
        await writer.wait_closed()
        self._left.set()

    async def close(self) -> None:
        """Go away."""
        if self._server:
            await self._left.wait()
            self._server.close()
            await self._server.wait_closed()
        self._socket.close()


@pytest.mark.parametrize(
    ("ever", "awaited", "sleeps", "body", "trouble"),
    [(True, True, 2, b"yes!", ""), (False, True, 19, b"", "refused"), (True, False, 0, b"", "refused")],
    ids=["starts", "never-starts", "not-ours"],
)
async def test_our_own_webhook_is_waited_for_while_it_starts(
    *, ever: bool, awaited: bool, sleeps: int, body: bytes, trouble: str
) -> None:
    """As long as its time allows and no longer; of any other one it is said at once that nobody listens."""
    starting = Starting(ever=ever)
    host, port = starting.address
    caller = HttpWebhookCaller(clock=starting, awaited=starting.address if awaited else None)
    endpoint = Endpoint(url=f"http://{host}:{port}/path")
    result = await caller.call(WebhookCall(webhook="w", endpoint=endpoint, body=BODY, timeout=1.0))
    await caller.close()
    await starting.close()
    assert (result.body, trouble in result.trouble.lower()) == (body, True)
    assert starting.sleeps == pytest.approx(sleeps, abs=1 if sleeps > 2 else 0)
