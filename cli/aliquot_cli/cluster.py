"""How a command for people finds its API server, and speaks to it as the person who calls.

What is named comes first (`--kubeconfig`, `--context`, `$KUBECONFIG`), then the `aliquot up` that runs from the user's
state folder, then what kubectl would take.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec

from aliquot_core.errors import ClusterError
from aliquot_kube.client import KubeClient
from aliquot_kube.plain import PlainTransport, plain_server
from aliquot_kube.questions import PieceTransport
from aliquot_standalone.home import Home, Running

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
    client: KubeClient
    namespace: str
    place: Place


def find_place(
    *, kubeconfig: str = "", context: str = "", folder: str = "", environment: Mapping[str, str] = os.environ
) -> Place:
    """Say where the API server is; `folder` is the setting `up.folder`."""
    home = Home.of(folder, environment=environment)
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
async def connected(command: str, *, place: Place) -> AsyncIterator[Connection]:
    """Speak to the API server as the person who calls."""
    transport, namespace = _transport(command, place)
    try:
        yield Connection(
            transport=transport,
            client=KubeClient(transport=transport),
            namespace=namespace or _USUAL_NAMESPACE,
            place=place,
        )
    finally:
        await transport.close()


def _transport(command: str, place: Place) -> tuple[PieceTransport, str]:
    user_agent = f"aliquot-{command}"
    if plain := plain_server(Path(place.kubeconfig), context=place.context):
        return PlainTransport(plain, user_agent=user_agent), plain.namespace
    # 0.3 s that a command before `aliquot up` does not wait.
    from aliquot_kube.credentials import Credentials, load_configuration, namespace_of  # noqa: PLC0415
    from aliquot_kube.transport import HttpTransport  # noqa: PLC0415 - the same

    load = partial(load_configuration, kubeconfig=place.kubeconfig, context=place.context)
    transport = HttpTransport(credentials=Credentials(load=load), user_agent=user_agent)
    return transport, namespace_of(place.kubeconfig, context=place.context)


def _usual() -> str:
    """What kubectl would use: these commands are a person's, unlike the processes."""
    usual = Path.home() / ".kube" / "config"
    return str(usual) if usual.exists() else ""
