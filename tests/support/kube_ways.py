"""The ways of the real transport to an API server, and scripts for one that fails or says nothing."""

from __future__ import annotations

from collections.abc import Callable

from aliquot_kube.clock import SystemClock
from aliquot_kube.credentials import Credentials
from aliquot_kube.questions import PieceTransport, Question
from aliquot_kube.swift import swiftest
from aliquot_kube.transport import HttpTransport
from support.scripted_http import Exchange, ScriptedServer

LIST = Question(method="GET", path="/api/v1/pods")
Connect = Callable[[ScriptedServer], PieceTransport]


def by_urllib3(credentials: Credentials) -> PieceTransport:
    """The way that does all."""
    return HttpTransport(credentials=credentials)


def by_loop(credentials: Credentials) -> PieceTransport:
    """The centre's way."""
    return swiftest(credentials=credentials, clock=SystemClock(), user_agent="aliquot")


WAYS: dict[str, Callable[[Credentials], PieceTransport]] = {"urllib3": by_urllib3, "swift": by_loop}


def failing(status: int, *, reason: str = "", message: str = "", **headers: str) -> Callable[[Exchange], None]:
    """Script a failure."""
    return lambda exchange: exchange.fail(status, reason=reason, message=message, **headers)


def silence(exchange: Exchange) -> None:
    """Say nothing at all."""
    exchange.wait_for_client_to_leave()


def endless_silence(exchange: Exchange) -> None:
    """Say one line of a stream, and nothing more."""
    exchange.begin_stream()
    exchange.line({"n": 1})
    exchange.wait_for_client_to_leave()
