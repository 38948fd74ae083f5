"""What pods really use, from the one place that tells it: the centre's page.

Agents measure it, and nothing of it is written to the API server (thousands of writes a minute). On `aliquot up` the
page's address is known; in a cluster it is named (--page), for example after `kubectl port-forward`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from aliquot_cli.cluster import Place
from aliquot_cli.pod_rows import Used
from aliquot_kube.errors import NOT_JSON, ApiError
from aliquot_kube.plain import PlainServer, PlainTransport
from aliquot_kube.questions import Question, Timeouts, Transport

_PATH = "/page/state.json"
# Whoever asks for a list of pods does not wait long for what stands beside it.
_BRIEF = Timeouts(connect=1.0, silence=5.0, total=5.0)


class _Shown(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Of what the page tells, that alone which is read here: another version of it may tell more."""


class _Slice(_Shown, frozen=True, kw_only=True):
    pod: str = ""
    used_compute: int | None = None
    used_memory: int | None = None
    used_since: float | None = None
    most_memory: int | None = None
    high_compute: int | None = None
    unpaid_launches: int | None = None


class _Gpu(_Shown, frozen=True, kw_only=True):
    slices: list[_Slice] = []


class _Node(_Shown, frozen=True, kw_only=True):
    gpus: list[_Gpu] = []


class _State(_Shown, frozen=True, kw_only=True):
    nodes: list[_Node] = []


async def read_used(place: Place, *, page: str = "") -> Mapping[str, Used]:
    """What each pod uses, by `namespace/name`; nothing where no page is known, or none answers."""
    body = await read_page(page or (place.up.page if place.up else ""))
    try:
        state = msgspec.json.decode(body, type=_State) if body else _State()
    except NOT_JSON:
        return {}
    return _by_pod(one for node in state.nodes for gpu in node.gpus for one in gpu.slices)


async def read_page(page: str) -> bytes:
    """The page's state as JSON; empty if it is not to be had."""
    if not page.startswith("http://"):
        return b""
    transport = PlainTransport(PlainServer(url=page))
    try:
        return await ask_page(transport)
    finally:
        await transport.close()


async def ask_page(transport: Transport) -> bytes:
    """The same over a connection that stays."""
    try:
        return (await transport.request(Question(method="GET", path=_PATH, timeouts=_BRIEF))).body
    except ApiError:
        return b""


def _by_pod(slices: Iterable[_Slice]) -> dict[str, Used]:
    """A pod's slices of several GPUs count together, known for as long as the one that is known least."""
    found: dict[str, Used] = {}
    for one in slices:
        before = found.get(one.pod, Used())
        since = [at for at in (before.since, one.used_since) if at is not None]
        found[one.pod] = Used(
            compute=_sum(before.compute, one.used_compute),
            memory=_sum(before.memory, one.used_memory),
            since=max(since, default=None),
            most_memory=_sum(before.most_memory, one.most_memory),
            high_compute=_sum(before.high_compute, one.high_compute),
            unpaid_launches=_sum(before.unpaid_launches, one.unpaid_launches),
        )
    return found


def _sum(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else one + other
