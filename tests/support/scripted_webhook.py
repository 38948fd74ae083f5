"""A webhook over TLS that says what a test has it say, and remembers what it was asked."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from aliquot_scheduler.certificates.issuing import Use
from support.centre_http import Authority

Json = dict[str, Any]
LOOPBACK = "127.0.0.1"
# By which name a server of a cluster would know it.
SERVICE = "hook.home.svc"


def allowing(*operations: Json, **more: Any) -> Json:
    """Let it pass, changed."""
    patch = base64.b64encode(json.dumps(operations).encode()).decode()
    return {"allowed": True, **({"patchType": "JSONPatch", "patch": patch} if operations else {}), **more}


class ScriptedWebhook:
    """Answers at any path."""

    def __init__(self, *, port: int, authority: bytes) -> None:
        self.port = port
        self._authority = authority
        # By path: from the request to what the response holds beside the uid.
        self.scripts: dict[str, Callable[[Json], Json]] = {}
        self.asked: list[tuple[str, Json]] = []

    def client_config(self, path: str) -> Json:
        """What a configuration says of it."""
        bundle = base64.b64encode(self._authority).decode()
        return {"url": f"https://{LOOPBACK}:{self.port}/{path}", "caBundle": bundle}

    def answer(self, path: str, request: Json) -> Json:
        """Say what the script says, or nothing against it."""
        self.asked.append((path, request))
        script = self.scripts.get(path)
        return script(request) if script else allowing()

    def names(self, about: str) -> list[str]:
        """Who was asked about an object of this name, in order."""
        return [path for path, request in self.asked if request["name"] == about]


class _Handler(BaseHTTPRequestHandler):
    webhook: ScriptedWebhook

    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        request = review["request"]
        said = self.webhook.answer(self.path.partition("?")[0].strip("/"), request)
        response = {"uid": request["uid"], **said}
        body = json.dumps({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response})
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def scripted_webhook(folder: Path) -> Iterator[ScriptedWebhook]:
    """Serve for as long as the block runs."""
    authority = Authority(folder)
    pair = authority.signs("webhook", hosts=[LOOPBACK, SERVICE], uses=[Use.SERVER])
    (folder / "server.pem").write_bytes(pair.certificate + pair.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")

    class Handler(_Handler):
        """Of this webhook alone."""

    server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    webhook = ScriptedWebhook(port=server.server_address[1], authority=authority.pair.certificate)
    Handler.webhook = webhook
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield webhook
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
