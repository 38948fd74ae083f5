"""Who is spoken to and as whom: credentials loaded anew, certificates, and what only one of the ways can."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
from kubernetes.client import Configuration

from aliquot_kube.credentials import Credentials
from aliquot_kube.errors import (
    UnauthorizedError,
    UnreachableError,
)
from aliquot_kube.swift import FRESH, SwiftTransport
from aliquot_kube.transport import HttpTransport
from support.clocks import VirtualClock
from support.kube_ways import LIST, WAYS, by_loop, endless_silence, failing
from support.require import skip_or_fail
from support.scripted_http import ScriptedServer


@pytest.mark.parametrize("way", WAYS)
async def test_unknown_again_after_fresh_credentials_asks_only_twice(way: str) -> None:
    """A 401 loads the credentials anew and asks once more; the second 401 is the answer."""
    tokens = iter(["old", "new", "newer"])
    with ScriptedServer(failing(401), lambda exchange: exchange.answer(200), failing(401)) as server:

        def load() -> Configuration:
            return Configuration(host=server.url, api_key={"BearerToken": f"Bearer {next(tokens)}\n"})

        transport = WAYS[way](Credentials(load))
        await transport.request(LIST)
        with pytest.raises(UnauthorizedError):
            await transport.request(LIST)
        await transport.close()
    sent = [request.headers["authorization"] for request in server.requests]
    assert sent == ["Bearer old", "Bearer new", "Bearer new", "Bearer newer"]


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for loopback, with its key in the same file."""
    openssl = shutil.which("openssl")
    if openssl is None:
        skip_or_fail("node", "the openssl command is missing, which makes the certificate")
    path = tmp_path_factory.mktemp("tls") / "loopback.pem"
    subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-days", "2", "-subj", "/CN=loopback", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", path, "-out", path),
        ],
        check=True,
        capture_output=True,
    )
    return path


@pytest.mark.parametrize("way", WAYS)
async def test_stream_over_tls_ends_at_once_too(certificate: Path, way: str) -> None:
    """TLS changes nothing: lines arrive and a silent watch is left without waiting."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    with ScriptedServer(endless_silence, tls=context) as server:
        configuration = Configuration(host=server.url, ssl_ca_cert=str(certificate))
        transport = WAYS[way](Credentials(lambda: configuration))
        # The server says nothing more: whoever waited for it to end would wait for ever.
        async with asyncio.timeout(60):
            async with transport.stream(LIST) as lines:
                assert await anext(lines) == b'{"n": 1}'
            await transport.close()
        server.wait_for_ended_connections(1)


@pytest.mark.parametrize("way", WAYS)
async def test_wrong_certificate_is_refused_and_the_credentials_loaded_anew(certificate: Path, way: str) -> None:
    """A server that our CA did not sign is not spoken to; a rotated CA is picked up by the next request."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    with ScriptedServer(lambda exchange: exchange.answer(200), tls=context) as server:
        authorities = iter([None, str(certificate)])
        transport = WAYS[way](Credentials(lambda: Configuration(host=server.url, ssl_ca_cert=next(authorities))))
        with pytest.raises(UnreachableError, match="certificate"):
            await transport.request(LIST)
        assert (await transport.request(LIST)).status == 200
        await transport.close()
    assert len(server.requests) == 1


async def test_a_token_that_was_renewed_is_sent_some_seconds_later_on_the_same_connection() -> None:
    """Who we are is looked up again when it is old, and no connection is thrown away for it."""
    clock, tokens = VirtualClock(), ["first"]

    def refresh(configuration: Configuration) -> None:
        configuration.api_key["BearerToken"] = f"Bearer {tokens[-1]}"

    with ScriptedServer(lambda exchange: exchange.answer(200)) as server:
        configuration = Configuration(host=server.url, api_key={"BearerToken": "Bearer first"})
        configuration.refresh_api_key_hook = refresh  # type: ignore[assignment]  # their stub says None
        transport = SwiftTransport(credentials=Credentials(lambda: configuration), clock=clock)
        await transport.request(LIST)
        tokens.append("second")
        await transport.request(LIST)
        await clock.advance(FRESH)
        await transport.request(LIST)
        await transport.close()
        assert len(server._connections) == 1
    sent = [request.headers["authorization"] for request in server.requests]
    assert sent == ["Bearer first", "Bearer first", "Bearer second"]


@pytest.mark.parametrize(
    ("wanted", "kind"),
    [
        ({}, SwiftTransport),
        ({"tls_server_name": "kubernetes"}, SwiftTransport),
        ({"assert_hostname": "other"}, HttpTransport),
        ({"proxy": "http://127.0.0.1:1"}, HttpTransport),
    ],
)
async def test_what_only_urllib3_can_goes_through_it(wanted: dict[str, str], kind: type) -> None:
    """Proxies, and another name in the certificate, are not tried on the loop."""
    configuration = Configuration(host="https://127.0.0.1:1")
    for name, value in wanted.items():
        setattr(configuration, name, value)
    transport = by_loop(Credentials(lambda: configuration))
    await transport.close()
    assert type(transport) is kind
