"""How a command for people finds its API server, and speaks to it as the person who calls.

What is named comes first (`--kubeconfig`, `--context`, `$KUBECONFIG`), then the `aliquot up` that runs from the user's
state folder, then what kubectl would take.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from aliquot_cli.contact import PATIENCE, LostServerError, PatientTransport
from aliquot_core.errors import ClusterError
from aliquot_kube.clock import SystemClock
from aliquot_kube.plain import PlainTransport, plain_server
from aliquot_kube.questions import PieceTransport, Question, Transport
from aliquot_standalone.kubelet.births import birth
from aliquot_standalone.whereabouts import Running, Whereabouts

if TYPE_CHECKING:
    from aliquot_kube.client import KubeClient

_USUAL_NAMESPACE = "default"


class NoServerError(ClusterError):
    """No API server was named, and none is where one usually is."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where the API server is said to be, and the `aliquot up` that it is part of, if it is."""

    kubeconfig: str
    context: str = ""
    up: Running | None = None


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """A way to the API server; `namespace` is meant where none is said."""

    transport: PieceTransport
    namespace: str
    place: Place

    @property
    def client(self) -> KubeClient:
        """Typed verbs over it."""
        # With the structs of all kinds, which a run imports while the pod that it has made is on its way.
        from aliquot_kube.client import KubeClient

        return KubeClient(transport=self.transport)


def find_place(
    *, kubeconfig: str = "", context: str = "", folder: str = "", environment: Mapping[str, str] = os.environ
) -> Place:
    """Say where the API server is; `folder` is the setting `up.folder`."""
    home = Whereabouts.of(folder, environment=environment)
    named = kubeconfig or environment.get("KUBECONFIG", "")
    if named or context:
        ours = bool(named) and Path(named).absolute() == home.kubeconfig
        return Place(kubeconfig=named or _usual(), context=context, up=home.running() if ours else None)
    if running := home.running():
        return Place(kubeconfig=str(home.kubeconfig), up=running)
    usual = _usual()
    if not usual and "KUBERNETES_SERVICE_HOST" not in environment:
        raise NoServerError(
            f"no `aliquot up` runs from {home.folder}, and there is no kubeconfig",
            where="API server",
            remedy="start `aliquot up`, or name a cluster with --kubeconfig",
        )
    return Place(kubeconfig=usual)


@asynccontextmanager
async def connected(
    command: str, *, place: Place, say: Callable[[str], None] | None = None
) -> AsyncIterator[Connection]:
    """Speak to the API server as the person who calls; a `LostServerError` ends the block when it is gone for good."""
    transport, namespace = _transport(command, place)
    try:
        with _unlogged():
            async with patient(transport, place=place, say=say or partial(click.echo, err=True)) as patiently:
                yield Connection(transport=patiently, namespace=namespace or _USUAL_NAMESPACE, place=place)
    finally:
        await transport.close()


@asynccontextmanager
async def patient(
    transport: PieceTransport, *, place: Place, say: Callable[[str], None]
) -> AsyncIterator[PatientTransport]:
    """Ask through this; the block ends when nobody will answer any more."""
    loop, up = asyncio.get_running_loop(), place.up

    def has_ended() -> bool:
        return up is not None and birth(up.pid) != up.born

    def give_up(seconds: float | None) -> None:
        # Whoever is ended by it may still ask, to tidy up.
        if not waiting.expired():
            waiting.reschedule(None if seconds is None else loop.time() + seconds)

    try:
        async with asyncio.timeout(None) as waiting:
            yield PatientTransport(
                transport,
                clock=SystemClock(),
                say=lambda text: say(f"aliquot: {text}"),
                has_ended=has_ended,
                give_up=give_up,
            )
    except TimeoutError:
        if not waiting.expired():
            raise
    # Also where what was cancelled has left in good order, as a screen does.
    if waiting.expired():
        raise _lost(place, ended=has_ended())


def _lost(place: Place, *, ended: bool) -> LostServerError:
    if ended:
        return LostServerError("`aliquot up` has ended", remedy="start it again: what is still to run then goes on")
    return LostServerError(
        f"nobody has answered for {PATIENCE:g} s",
        where=place.up.api if place.up else place.kubeconfig or "API server",
        remedy="is it up and reachable? What was submitted stays",
    )


@contextmanager
def _unlogged() -> Iterator[None]:
    """What a daemon would log of its connection a command tells in words of its own."""
    silent, log = logging.NullHandler(), logging.getLogger("aliquot_kube")
    log.addHandler(silent)
    try:
        yield
    finally:
        log.removeHandler(silent)


def _transport(command: str, place: Place) -> tuple[PieceTransport, str]:
    user_agent = f"aliquot-{command}"
    if plain := plain_server(Path(place.kubeconfig), context=place.context):
        return PlainTransport(plain, user_agent=user_agent), plain.namespace
    # 0.3 s that a command before `aliquot up` does not wait.
    from aliquot_kube.credentials import Credentials, load_configuration, namespace_of
    from aliquot_kube.transport import HttpTransport

    load = partial(load_configuration, kubeconfig=place.kubeconfig, context=place.context)
    transport = HttpTransport(credentials=Credentials(load=load), user_agent=user_agent)
    return transport, namespace_of(place.kubeconfig, context=place.context)


async def is_embedded(transport: Transport) -> bool:
    """Whether programs run beside the API server: the one of `aliquot up` says so in its version."""
    answer = await transport.request(Question(method="GET", path="/version"))
    return str(msgspec.json.decode(answer.body).get("gitVersion", "")).endswith("-aliquot")


def _usual() -> str:
    """What kubectl would use: these commands are a person's, unlike the processes."""
    usual = Path.home() / ".kube" / "config"
    return str(usual) if usual.exists() else ""
