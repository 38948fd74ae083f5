"""The ways of a process to its API server: one for all it does, and one for what must not wait behind anything.

What `aliquot up` writes as kubeconfig says an address and a token, and needs no official client: that one takes 0.35 s
to import and 43 MiB, in each of the processes for which a person waits there.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from aliquot_core.clock import Clock
from aliquot_kube.plain import PlainTransport, plain_server
from aliquot_kube.questions import PieceTransport

Ways = tuple[PieceTransport, PieceTransport]


def ways_of_a_node(kubeconfig: str, *, user_agent: str) -> Ways:
    """Of an agent: on threads, for its memory; see `aliquot_kube.transport`."""
    if plain := _plain(kubeconfig, user_agent=user_agent):
        return plain
    from aliquot_kube.credentials import Credentials, load_configuration
    from aliquot_kube.transport import HttpTransport

    credentials = Credentials(load=partial(load_configuration, kubeconfig=kubeconfig))
    return (
        HttpTransport(credentials=credentials, user_agent=user_agent),
        HttpTransport(credentials=credentials, user_agent=user_agent, workers=1),
    )


def ways_of_the_centre(kubeconfig: str, *, user_agent: str, clock: Clock) -> Ways:
    """On the loop, for its speed; what must not wait has a thread of its own."""
    if plain := _plain(kubeconfig, user_agent=user_agent):
        return plain
    from aliquot_kube.credentials import Credentials, load_configuration
    from aliquot_kube.swift import swiftest
    from aliquot_kube.transport import HttpTransport

    credentials = Credentials(load=partial(load_configuration, kubeconfig=kubeconfig))
    return (
        swiftest(credentials=credentials, clock=clock, user_agent=user_agent),
        HttpTransport(credentials=credentials, user_agent=user_agent, workers=1),
    )


def _plain(kubeconfig: str, *, user_agent: str) -> Ways | None:
    server = plain_server(Path(kubeconfig)) if kubeconfig else None
    if server is None:
        return None
    return PlainTransport(server, user_agent=user_agent), PlainTransport(server, user_agent=user_agent)
