"""The webhook as a process of its own: `python webhook_process.py PORT CERTIFICATE KEY KUBECONFIG`.

It follows queues and namespaces as a replica of the centre does, and nothing else.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import sys
from collections.abc import AsyncIterator
from functools import partial

from aiohttp import web
from prometheus_client import CollectorRegistry

from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_kube.clock import SystemClock
from aliquot_kube.credentials import Credentials, load_configuration
from aliquot_kube.transport import HttpTransport
from aliquot_scheduler.admission.admission import Admission
from aliquot_scheduler.admission.landscape import Landscape
from aliquot_scheduler.admission.metrics import AdmissionMetrics
from aliquot_scheduler.admission.routes import admission_routes
from aliquot_scheduler.admission.settings import AdmissionSettings
from aliquot_scheduler.admission.sparing import Sparing
from aliquot_scheduler.extender.forwarding import LeadersAnswer


async def _following(_: web.Application, *, landscape: Landscape, transport: HttpTransport) -> AsyncIterator[None]:
    task = asyncio.ensure_future(landscape.run())
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await transport.close()


async def _nobody_waits(_: Pod) -> Pod | None:
    return None


async def _leads(_path: str, _body: bytes) -> LeadersAnswer | None:
    return None


def _none(_: web.Request) -> bool:
    return False


async def _alive(_: web.Request) -> web.Response:
    return web.Response(text="ok")


def main(port: str, certificate: str, key: str, kubeconfig: str) -> None:
    """Serve until told to end."""
    app = web.Application()
    credentials = Credentials(load=partial(load_configuration, kubeconfig=kubeconfig))
    transport = HttpTransport(credentials=credentials, user_agent="aliquot-webhook")
    landscape = Landscape(transport=transport, clock=SystemClock(), random=random.random, names=Names())
    admission = Admission(names=Names(), settings=AdmissionSettings(), plans=landscape, there=landscape.there)
    sparing = Sparing(names=Names(), leads=lambda: True, one_for=_nobody_waits, one_seen=_nobody_waits, forward=_leads)
    metrics = AdmissionMetrics(CollectorRegistry())
    app.add_routes(admission_routes(admission, sparing=sparing, metrics=metrics, clock=SystemClock(), is_replica=_none))
    app.cleanup_ctx.append(partial(_following, landscape=landscape, transport=transport))
    app.add_routes([web.get("/healthz", _alive)])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    web.run_app(app, host="127.0.0.1", port=int(port), ssl_context=context, print=None)


if __name__ == "__main__":
    main(*sys.argv[1:])
