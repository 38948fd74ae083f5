"""What kube-proxy is to a Service, on loopback: connections go to one of its ready endpoints.

The nodes of the test cluster share one address, at which two replicas could not both listen. So each node has an
address of the loopback network for its pods, and whoever calls the Service calls this door.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import socketserver
import threading
from collections.abc import Callable

from cluster.harness.api import Json
from cluster.harness.controlplane import LOOPBACK

_MOST = 65_536


class ServiceDoor:
    """Listens from its making on; `close` ends it."""

    def __init__(self, *, slices: Callable[[], list[Json]], address: Callable[[str], tuple[str, int]]) -> None:
        """`slices` are the Service's EndpointSlices now, `address` is where the pods of a node listen."""
        self._slices = slices
        self._address = address
        self._turn = itertools.count()
        door = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                door._serve(self.request)

        self._server = _Server((LOOPBACK, 0), Handler)
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        self._server.shutdown()
        self._server.server_close()

    def ready(self) -> list[str]:
        """The nodes whose pods may be called."""
        endpoints = [each for one in self._slices() for each in one.get("endpoints") or []]
        return sorted(each["nodeName"] for each in endpoints if each["conditions"].get("ready"))

    def _serve(self, caller: socket.socket) -> None:
        nodes = self.ready()
        if not nodes:
            return
        with socket.create_connection(self._address(nodes[next(self._turn) % len(nodes)])) as called:
            back = threading.Thread(target=_pump, args=(called, caller), daemon=True)
            back.start()
            _pump(caller, called)
            back.join()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128


def _pump(source: socket.socket, target: socket.socket) -> None:
    """Hand on until one side ends; then the other learns of it."""
    # Whichever way a connection ends, it is over.
    with contextlib.suppress(OSError):
        while block := source.recv(_MOST):
            target.sendall(block)
    for one in (source, target):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
