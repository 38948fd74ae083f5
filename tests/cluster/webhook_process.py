"""The webhook as a process of its own: `python webhook_process.py PORT CERTIFICATE KEY`."""

from __future__ import annotations

import ssl
import sys

from aiohttp import web

from aliquot_core.names import Names
from aliquot_scheduler.admission.admission import Admission
from aliquot_scheduler.admission.routes import admission_routes
from aliquot_scheduler.admission.settings import AdmissionSettings


async def _alive(_: web.Request) -> web.Response:
    return web.Response(text="ok")


def main(port: str, certificate: str, key: str) -> None:
    """Serve until told to end."""
    app = web.Application()
    app.add_routes(admission_routes(Admission(names=Names(), settings=AdmissionSettings())))
    app.add_routes([web.get("/healthz", _alive)])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    web.run_app(app, host="127.0.0.1", port=int(port), ssl_context=context, print=None)


if __name__ == "__main__":
    main(*sys.argv[1:])
