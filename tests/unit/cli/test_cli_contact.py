"""What commands tell of a server that is away, and when they give it up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from aliquot_cli.cluster import Place, patient
from aliquot_cli.contact import PATIENCE, Contact, LostServerError, PatientTransport
from aliquot_kube.errors import ApiError, NotFoundError, ServerTroubleError, UnauthorizedError, UnreachableError
from aliquot_kube.questions import Question, Response
from support.clocks import VirtualClock

ASKED = Question(method="GET", path="/api/v1/pods")
AWAY = UnreachableError("no connection")


class Scripted:
    """A server that answers, or fails as it is told to."""

    def __init__(self) -> None:
        self.error: ApiError | None = None
        self.headers: dict[str, str] = {}

    async def request(self, question: Question) -> Response:
        """As it is now."""
        self._fail(question)
        return Response(status=200, headers=self.headers, body=b"{}")

    @asynccontextmanager
    async def stream(self, question: Question) -> AsyncIterator[AsyncIterator[bytes]]:
        """Nothing, or cut in the middle."""
        self._fail(question)
        yield self._lines(question)

    pieces = stream

    async def close(self) -> None:
        """Nothing is open."""

    async def _lines(self, question: Question) -> AsyncIterator[bytes]:
        yield b"{}"
        self._fail(question)

    def _fail(self, _: Question) -> None:
        if self.error:
            raise self.error


class Stage:
    """A patient transport, and what it said and asked for."""

    def __init__(self, *, ended: bool = False) -> None:
        self.clock = VirtualClock()
        self.server = Scripted()
        self.said: list[str] = []
        self.gives_up: list[float | None] = []
        self.transport = PatientTransport(
            self.server,
            clock=self.clock,
            say=self.said.append,
            has_ended=lambda: ended,
            give_up=self.gives_up.append,
        )

    async def ask(self, error: ApiError | None = None) -> None:
        """Ask, and get what is to come of it."""
        self.server.error = error
        if error is None:
            await self.transport.request(ASKED)
            return
        with pytest.raises(type(error)):
            await self.transport.request(ASKED)


def test_an_absence_is_told_once_and_so_is_its_end() -> None:
    """From the second question on: the first is told of by whoever asked it."""
    contact = Contact()
    assert contact.asks() == ""
    contact.failed("no connection", now=0.0)
    assert "no connection" in contact.asks()
    contact.failed("no connection", now=1.0)
    assert (contact.asks(), contact.asks()) == ("", "")
    assert contact.answered() == "the API server answers again"
    assert (contact.asks(), contact.answered()) == ("", "")
    contact.failed("cut", now=2.0)
    assert "cut" in contact.asks()


def test_an_absence_that_nobody_noticed_is_not_told() -> None:
    """What is mended by the next answer is no news."""
    contact = Contact()
    contact.failed("cut", now=0.0)
    assert contact.answered() == ""


async def test_patience_counts_from_the_first_failure() -> None:
    """Each one after that brings the end nearer, and an answer takes it back."""
    stage = Stage()
    await stage.ask(AWAY)
    await stage.clock.advance(10)
    await stage.ask(AWAY)
    await stage.clock.advance(100)
    await stage.ask(AWAY)
    await stage.ask()
    await stage.ask(AWAY)
    assert stage.gives_up == [PATIENCE, PATIENCE - 10, 0.0, None, PATIENCE]


async def test_one_that_has_ended_is_given_up_at_once() -> None:
    """Nobody waits for an `aliquot up` that is no more."""
    stage = Stage(ended=True)
    await stage.ask(AWAY)
    assert stage.gives_up == [0.0]


@pytest.mark.parametrize("error", [UnauthorizedError("another token"), ServerTroubleError("starting")])
async def test_whoever_is_of_no_use_is_as_good_as_away(error: ApiError) -> None:
    """A server that only ever refuses is not waited for either."""
    stage = Stage()
    await stage.ask(error)
    assert stage.gives_up == [PATIENCE]


async def test_a_refusal_is_an_answer() -> None:
    """What is not there was looked for."""
    stage = Stage()
    await stage.ask(AWAY)
    await stage.ask(NotFoundError("no such pod"))
    assert stage.gives_up == [PATIENCE, None]


@pytest.mark.parametrize(("error", "gives_up"), [(AWAY, [None, PATIENCE]), (ServerTroubleError("node"), [None, None])])
async def test_a_log_that_breaks_off_is_the_servers_fault_only_if_it_is_away(
    error: ApiError, gives_up: list[float | None]
) -> None:
    """A node that can't be asked for its log leaves the API server as it is."""
    stage = Stage()

    async def read() -> None:
        async with stage.transport.pieces(ASKED) as pieces:
            stage.server.error = error
            async for _ in pieces:
                pass

    with pytest.raises(type(error)):
        await read()
    assert stage.gives_up == gives_up


@pytest.mark.parametrize("leaves_in_order", [False, True])
async def test_a_command_ends_with_what_has_become_of_its_server(
    monkeypatch: pytest.MonkeyPatch, *, leaves_in_order: bool
) -> None:
    """Whatever it waits for, and also if it takes its end for an order to leave, as a screen does."""
    monkeypatch.setattr("aliquot_cli.contact.PATIENCE", 0.01)
    server = Scripted()
    server.error = AWAY

    async def wait() -> None:
        async with patient(server, place=Place(kubeconfig="here"), say=lambda _: None) as transport:
            with suppress(UnreachableError):
                await transport.request(ASKED)
            with suppress(*([asyncio.CancelledError] if leaves_in_order else [])):
                await asyncio.Event().wait()

    with pytest.raises(LostServerError, match="nobody has answered"):
        await wait()


async def test_a_command_that_is_done_is_not_ended() -> None:
    """A failure that it could do without is forgotten with it."""
    server = Scripted()
    server.error = AWAY
    async with patient(server, place=Place(kubeconfig="here"), say=lambda _: None) as transport:
        with pytest.raises(UnreachableError):
            await transport.request(ASKED)


async def test_what_the_server_has_every_reader_know_is_told_once() -> None:
    """Each sentence, however often it comes; what is said of a write is its maker's to tell."""
    stage = Stage()
    stage.server.headers = {"warning": '299 - "the disk is full (\\"home\\")", 299 - "and slow"'}
    await stage.transport.request(Question(method="POST", path="/api/v1/pods", body=b"{}"))
    assert stage.said == []
    await stage.transport.request(ASKED)
    await stage.transport.request(ASKED)
    assert stage.said == ['the disk is full ("home")', "and slow"]
