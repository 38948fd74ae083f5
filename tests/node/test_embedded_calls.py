"""How the embedded API server reaches webhooks: by URL or Service, over TLS, within their time."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from aliquot_standalone.apiserver.calling import HttpWebhookCaller
from aliquot_standalone.apiserver.consulting import Endpoint, Service, WebhookCall
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

    caller = HttpWebhookCaller(find=find)
    yield caller
    await caller.close()


def call(
    webhook: ScriptedWebhook, *, service: str = "", timeout: float = 5.0, bundle: str | None = None
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
        over.wait(10)
        return allowing()

    webhook.scripts["path"] = wait
    result = await caller.call(call(webhook, timeout=0.3))
    over.set()
    assert "deadline exceeded" in result.trouble
