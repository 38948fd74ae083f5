"""However the server is closed, no connection stays behind."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from aliquot_kube.clock import SystemClock
from aliquot_standalone.apiserver.http import HttpServer
from support.embedded_api import make_frontend
from support.embedded_thread import embedded_server
from support.http_api import HttpApi

MAPS = "/api/v1/namespaces/default/configmaps"
MOST_TURNS = 1000


def served() -> HttpServer:
    """A server that is not started yet."""
    return HttpServer(frontend=make_frontend(), clock=SystemClock())


@contextmanager
def connected(server: HttpServer) -> Iterator[socket.socket]:
    """A client that the kernel has connected, whatever the server does about it."""
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port))) as client:
        client.setblocking(False)
        yield client


def hung_up(client: socket.socket) -> bool:
    """Whether the server has ended the connection."""
    try:
        return client.recv(1 << 20) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


async def until_hung_up(client: socket.socket) -> bool:
    """Let the loop turn until the server has ended the connection, or for long enough."""
    for _ in range(MOST_TURNS):
        if hung_up(client):
            return True
        await asyncio.sleep(0)
    return False


@pytest.mark.parametrize("turns", range(6))
async def test_a_client_that_comes_at_the_end_is_hung_up_on(turns: int) -> None:
    """At whatever turn of the loop between its coming and its being served the server is closed."""
    server = served()
    await server.start()
    with connected(server) as client:
        for _ in range(turns):
            await asyncio.sleep(0)
        await server.close()
        assert await until_hung_up(client)


def test_a_client_that_does_not_read_is_cut_off() -> None:
    """What is still to be written to it does not keep the connection; pytest fails a test that leaves one."""
    with socket.socket() as client:
        with embedded_server() as url:
            HttpApi(url=url).post(MAPS, {"metadata": {"name": "one"}, "data": {"large": "x" * 1_000_000}}).ok()
            host, _, port = url.removeprefix("http://").rpartition(":")
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            client.connect((host, int(port)))
            # No buffer of the kernel's takes so many answers; the first of them has begun.
            client.sendall(f"GET {MAPS} HTTP/1.1\r\nHost: here\r\n\r\n".encode() * 20)
            assert client.recv(1)
        gc.collect()
