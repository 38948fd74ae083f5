"""What simulated GPUs and slices use, in Prometheus' text and by the names that agents use: one page for all nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager

import msgspec
from aiohttp import web

from aliquot_agent.gpus.model import GpuUsage
from aliquot_standalone.simulated.fleet import Fleet
from aliquot_standalone.simulated.owners import Owner

_PATH = "/metrics"
_LOOPBACK = "127.0.0.1"
_MIB = 1024 * 1024
_WHOLE = 100
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def lines(node: str, usages: Sequence[GpuUsage], *, owners: Mapping[int, Owner]) -> Iterator[str]:
    """One node's samples; `owners` are by process."""
    for gpu in usages:
        of_gpu = _labels(node=node, UUID=gpu.uuid)
        yield f"aliquot_gpu_memory_used_bytes{of_gpu} {gpu.memory_used_mib * _MIB}"
        if gpu.utilization_percent is not None:
            yield f"aliquot_gpu_compute_used_ratio{of_gpu} {gpu.utilization_percent / _WHOLE}"
        for process in gpu.processes:
            if (owner := owners.get(process.pid)) is not None:
                of_slice = _labels(node=node, UUID=gpu.uuid, **msgspec.structs.asdict(owner))
                yield f"aliquot_slice_memory_used_bytes{of_slice} {(process.memory_mib or 0) * _MIB}"
                if process.sm_percent is not None:
                    yield f"aliquot_slice_compute_used_ratio{of_slice} {process.sm_percent / _WHOLE}"


@asynccontextmanager
async def metrics_served(fleet: Fleet, *, port: int) -> AsyncIterator[None]:
    """Serve the page of the whole fleet on loopback for as long as the block runs."""

    async def page(_: web.Request) -> web.Response:
        nodes = fleet.nodes.values()
        told = [line for node in nodes for line in lines(node.name, await node.usage(), owners=node.owners())]
        return web.Response(text="\n".join([*told, ""]))

    application = web.Application()
    application.router.add_get(_PATH, page)
    runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, _LOOPBACK, port).start()
        yield
    finally:
        await runner.cleanup()


def metrics_at(port: int) -> str:
    """Where such a page is; an agent's own has the same path."""
    return f"http://{_LOOPBACK}:{port}{_PATH}"


def _labels(**values: str) -> str:
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in values.items()) + "}"
