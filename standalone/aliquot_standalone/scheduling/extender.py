"""Asks the extender as kube-scheduler asks it: version 1 of its wire, over TLS with a certificate of its own.

Nodes go by name (`nodeCacheCapable`), pods as the objects that the extender reads; keys are Go's field names, since the
structs there carry no others.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from aliquot_core.errors import ClusterError
from aliquot_core.names import Names
from aliquot_kube.errors import NOT_JSON
from aliquot_standalone.posts import Place, Poster, PostError
from aliquot_standalone.scheduling.attempt import Answer, Ask
from aliquot_standalone.scheduling.objects import PlacedPod

_HTTPS_PORT = 443
# Of each of thousands of nodes a sentence.
_MOST_ANSWER = 16 * 1024 * 1024

T = TypeVar("T")


class ExtenderError(ClusterError):
    """Nothing was decided: the extender said so, or was not to be reached."""


class ExtenderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where it is, and how it is asked; the numbers are those of Aliquot's profile."""

    # Such as https://127.0.0.1:10943/extender.
    url: str
    certificate: str
    key: str
    authority: str
    # The name in its certificate, by whatever address it is reached.
    server_name: str = "aliquot-centre"
    timeout: float = 5.0
    # Resources that are its business: other pods are placed without it.
    managed: tuple[str, ...] = Names().resources()


class _Wire(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """Common settings of what travels."""


class _Args(_Wire, frozen=True, kw_only=True):
    pod: PlacedPod
    nodes: None = None
    node_names: list[str]


class _Filtered(_Wire, frozen=True, kw_only=True):
    node_names: list[str] | None = None
    failed_nodes: dict[str, str] | None = None
    failed_and_unresolvable_nodes: dict[str, str] | None = None
    error: str = ""


class _Grade(_Wire, frozen=True, kw_only=True):
    host: str
    score: int


class _Binding(_Wire, frozen=True, kw_only=True):
    pod_name: str
    pod_namespace: str
    pod_uid: str = msgspec.field(name="PodUID")
    node: str


class _Bound(_Wire, frozen=True, kw_only=True):
    error: str = ""


class Extender:
    """The one extender of the profile."""

    def __init__(self, settings: ExtenderSettings) -> None:
        self.settings = settings
        self._path = urlsplit(settings.url).path.rstrip("/")
        self._poster: Poster | None = None

    async def close(self) -> None:
        """Hang up."""
        if self._poster is not None:
            await self._poster.close()

    async def ask(self, pod: PlacedPod, ask: Ask) -> Answer:
        """Put a question of an attempt."""
        body = await self._call(ask.verb, _Args(pod=pod, node_names=ask.nodes))
        if ask.verb == "prioritize":
            return Answer(grades={one.host: one.score for one in _decoded(body, list[_Grade])})
        told = _decoded(body, _Filtered)
        if told.error:
            raise ExtenderError(told.error, where="extender filter")
        failed: Mapping[str, str] = {**(told.failed_nodes or {}), **(told.failed_and_unresolvable_nodes or {})}
        return Answer(nodes=told.node_names or [], failed=failed)

    async def bind(self, pod: PlacedPod, *, node: str) -> None:
        """Have a pod bound."""
        meta = pod.metadata
        binding = _Binding(pod_name=meta.name, pod_namespace=meta.namespace, pod_uid=meta.uid, node=node)
        if error := _decoded(await self._call("bind", binding), _Bound).error:
            raise ExtenderError(error, where="extender bind")

    async def _call(self, verb: str, asked: msgspec.Struct) -> bytes:
        where = f"extender {verb}"
        try:
            return await self._connected().post(
                f"{self._path}/{verb}", msgspec.json.encode(asked), timeout=self.settings.timeout, most=_MOST_ANSWER
            )
        except TimeoutError as error:
            raise ExtenderError(f"no answer within {self.settings.timeout:g} s", where=where) from error
        except (OSError, PostError) as error:
            raise ExtenderError(f"no answer: {error}", where=where) from error

    def _connected(self) -> Poster:
        if self._poster is None:
            parts = urlsplit(self.settings.url)
            trust = ssl.create_default_context(cafile=self.settings.authority)
            trust.load_cert_chain(self.settings.certificate, self.settings.key)
            place = Place(
                host=parts.hostname or "", port=parts.port or _HTTPS_PORT, server_name=self.settings.server_name
            )
            self._poster = Poster(place, trust=trust)
        return self._poster


def _decoded(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except NOT_JSON as error:
        raise ExtenderError(f"not an extender's answer: {error}", where="extender") from error
