"""One who attends a pod loses nothing of it, whatever breaks on the way to it; and many at once get each its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from aliquot_cli.attending import Attending
from aliquot_cli.cluster import Connection, Place
from aliquot_cli.creating import create
from aliquot_cli.one_run import INTERRUPTED, LOST
from aliquot_cli.pod_output import Log, print_all
from aliquot_cli.submitting import CONTAINER, Wish, manifest
from aliquot_core.names import Names
from aliquot_kube.clock import SystemClock
from aliquot_kube.errors import ServerTroubleError, UnreachableError
from aliquot_kube.plain import PlainServer, PlainTransport
from aliquot_kube.questions import Question, Response, Transport
from aliquot_kube.resources import PODS
from aliquot_standalone.kubelet.log_limits import MOST, hold_to
from support.small_machine import SmallMachine, phase

_MANY = 40


class Snatching(PlainTransport):
    """Somebody deletes whatever is made, before its maker can look."""

    async def request(self, question: Question) -> Response:
        """As it is asked."""
        answer = await super().request(question)
        if question.method == "POST":
            made = json.loads(answer.body)["metadata"]
            path = PODS.path(namespace=made["namespace"], name=made["name"])
            await super().request(Question(method="DELETE", path=path))
        return answer


class Mute(PlainTransport):
    """A node that is dead: nobody has what the pod printed."""

    @asynccontextmanager
    async def pieces(self, question: Question) -> AsyncIterator[AsyncIterator[bytes]]:
        """Refuse logs alone."""
        if question.path.endswith("/log"):
            raise ServerTroubleError("no answer from the kubelet", where="api")
        async with super().pieces(question) as found:
            yield found


async def no_embedded_server(_: Transport) -> bool:
    """A cluster's, which knows no bytes to begin from."""
    return False


class Breaking(PlainTransport):
    """The first answer of a log breaks off after some bytes; then something happens."""

    def __init__(self, url: str, then: Callable[[], object]) -> None:
        super().__init__(PlainServer(url=url))
        self._then: Callable[[], object] | None = then

    @asynccontextmanager
    async def pieces(self, question: Question) -> AsyncIterator[AsyncIterator[bytes]]:
        """As it is asked, from the second time on."""
        async with super().pieces(question) as found:
            yield self._broken(found) if self._then else found

    async def _broken(self, found: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        yield await anext(found)
        if self._then:
            self._then()
        self._then = None
        raise UnreachableError("cut", where="api")


async def test_a_log_that_breaks_off_loses_nothing_that_is_still_there(
    machine: SmallMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its beginning, printed already, is let go meanwhile: so how much to skip of the rest can't be counted."""
    monkeypatch.setattr("aliquot_cli.pod_output._AGAIN_S", 0.01)
    machine.create("long", "sh", "-c", "seq 100000 199999")
    machine.until("long", phase("Succeeded"))
    (log,) = machine.logs.glob("default_long_*/main/0.log")

    async def read(*, most: int, tail: int | None = None) -> tuple[bytes, bytes]:
        """What is printed before it breaks off, and after; no more than `most` is left of it then."""
        transport, printed = Breaking(machine.url, lambda: hold_to(most, files=[log])), list[bytes]()
        wanted = Log(namespace="default", pod="long", tail=tail)
        try:
            why = await print_all(transport, wanted, write=printed.append, clock=SystemClock(), there=lambda: True)
        finally:
            await transport.close()
        assert not why
        return printed[0], b"".join(printed[1:])

    assert b"".join(await read(most=MOST)) == log.read_bytes()
    first, rest = await read(most=64 * 1024)
    assert first.startswith(b"100000\n")
    assert rest == log.read_bytes().lstrip(b"\0")
    # In a cluster lines from the end are told again: which of them were told is not known.
    monkeypatch.setattr("aliquot_cli.pod_output.is_embedded", no_embedded_server)
    assert await read(most=MOST, tail=2) == (b"199998\n199999\n", b"199998\n199999\n")


async def no_places(uid: str, *, tell: Callable[[str], None]) -> None:
    """Nobody tells."""


def attending_by(
    transport: PlainTransport,
    machine: SmallMachine,
    *,
    say: Callable[[str], None],
    write: Callable[[bytes], None] = lambda _: None,
    interrupts: asyncio.Queue[None] | None = None,
) -> Attending:
    """A run over this way to the API server."""
    place = Place(kubeconfig=str(machine.folder / "kubeconfig"))
    return Attending(
        connection=Connection(transport=transport, namespace="default", place=place),
        names=Names(),
        clock=SystemClock(),
        random=lambda: 0.5,
        write=write,
        say=say,
        warn=say,
        places=no_places,
        interrupts=interrupts or asyncio.Queue(),
        container=CONTAINER,
    )


async def test_a_pod_whose_output_is_lost_ends_all_the_same(
    machine: SmallMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the program's own code, and a word on what could not be read."""
    monkeypatch.setattr("aliquot_cli.attending._READ_WITHIN", 0.1)
    monkeypatch.setattr("aliquot_cli.pod_output._AGAIN_S", 0.01)
    transport, said = Mute(PlainServer(url=machine.url)), list[str]()
    wish = Wish(command=["sh", "-c", "exit 7"], name="mute", namespace="default", compute=10)
    try:
        attending = attending_by(transport, machine, say=said.append)
        created = await create(transport, manifest(wish, names=Names()))
        assert await attending.attend(created, keep=False) == 7
    finally:
        await transport.close()
    assert said == ["its output can't be read: api: no answer from the kubelet"]


async def test_who_interrupts_before_the_pod_is_there_has_it_taken_away(machine: SmallMachine) -> None:
    """The wish is kept while the pod is made and what follows it is imported."""
    transport, said = PlainTransport(PlainServer(url=machine.url)), list[str]()
    interrupts: asyncio.Queue[None] = asyncio.Queue()
    interrupts.put_nowait(None)
    wish = Wish(command=["sleep", "1000"], name="unwanted", namespace="default", compute=10)
    machine.binds.clear()
    try:
        created = await create(transport, manifest(wish, names=Names()))
        attending = attending_by(transport, machine, say=said.append, interrupts=interrupts)
        assert await attending.attend(created, keep=False) == INTERRUPTED
    finally:
        machine.binds.set()
        await transport.close()
    assert said == ["stopping it; again: kill it now"]


async def test_a_pod_that_is_gone_before_it_can_be_watched_is_missed(machine: SmallMachine) -> None:
    """The first list does not have it: nobody would ever tell of its end."""
    transport = Snatching(PlainServer(url=machine.url))
    said: list[str] = []
    attending = attending_by(transport, machine, say=said.append)
    wish = Wish(command=["true"], name="snatched", namespace="default", compute=10)
    machine.binds.clear()
    try:
        created = await create(transport, manifest(wish, names=Names()))
        assert await attending.attend(created, keep=False) == LOST
    finally:
        machine.binds.set()
        await transport.close()
    assert said == ["somebody has deleted it"]


async def test_many_at_once_get_each_its_own(machine: SmallMachine) -> None:
    """Each prints what its own program printed, whole, and returns that one's code; nothing is said of any."""
    said, printed, codes = list[str](), [b""] * _MANY, [-1] * _MANY

    async def attend(number: int) -> None:
        def write(piece: bytes) -> None:
            printed[number] += piece

        transport = PlainTransport(PlainServer(url=machine.url))
        program = f"seq {number}; exit {number % 5}"
        # So little that all of them may run at once: who finds no room is refused here.
        wish = Wish(command=["sh", "-c", program], name=f"many-{number}", namespace="default", compute=1)
        try:
            created = await create(transport, manifest(wish, names=Names()))
            attending = attending_by(transport, machine, say=said.append, write=write)
            codes[number] = await attending.attend(created, keep=False)
        finally:
            await transport.close()

    async with asyncio.TaskGroup() as runs:
        for number in range(_MANY):
            runs.create_task(attend(number))
    assert codes == [number % 5 for number in range(_MANY)]
    assert printed == [b"".join(b"%d\n" % line for line in range(1, number + 1)) for number in range(_MANY)]
    assert said == []
