"""Our own child processes: whoever looks on is told how one has ended, and one that hangs is started anew."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aliquot_standalone import children as module
from aliquot_standalone.children import DEATHS, ChildError, Children, Command, how_it_ended
from aliquot_standalone.ports import LOOPBACK
from aliquot_standalone.probing import NobodyThereError, is_well
from support.clocks import LeapingClock, VirtualClock

SAYS = "import sys; print('last words of', sys.argv[1], flush=True); sys.exit(int(sys.argv[2]))"
STAYS = "import signal; signal.pause()"
DIES_BY_9 = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"


@pytest.fixture
def told() -> list[str]:
    """What the terminal was told."""
    return []


@pytest.fixture
async def children(tmp_path: Path, told: list[str]) -> AsyncIterator[Children]:
    """Children whose rests take no time."""
    kept = Children(logs=tmp_path, clock=LeapingClock(), say=told.append)
    yield kept
    await kept.close()


def command(*argv: str, health: int = 0) -> Command:
    """One that runs a script instead of a command of ours."""
    return Command(name="child", argv=argv, environment={}, health=health)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (0, "ended with exit code 0"),
        (4, "ended with exit code 4"),
        (-9, "was killed by signal 9 (out of memory? see dmesg)"),
        (-11, "was killed by signal 11"),
    ],
)
def test_how_a_process_ended_is_said_in_words(code: int, said: str) -> None:
    """The kernel's own killing for memory leaves no other trace than this number."""
    assert how_it_ended(code) == said


async def test_each_death_is_told_and_the_last_words_are_of_the_last(
    children: Children, told: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the first one already; what an earlier run has left in the log is nobody's last word."""
    monkeypatch.setattr(module, "DIES_WITH_PARENT", SAYS)
    log = tmp_path / "child.log"
    log.write_text("of another day\n")
    await children.start(command("one", "4"))
    with pytest.raises(ChildError) as caught:
        await children.run()
    assert told == [f"the child ended with exit code 4, and is started again; its log is {log}"] * (DEATHS - 1)
    assert str(caught.value) == (
        "the child has ended by itself 4 times in a row; the last time it ended with exit code 4, and these were its "
        "last lines:\n  last words of one"
    )
    assert log.read_text() == "of another day\n" + "last words of one\n" * DEATHS


async def test_who_dies_without_a_word_is_not_quoted(children: Children, monkeypatch: pytest.MonkeyPatch) -> None:
    """How it died is all that is known."""
    monkeypatch.setattr(module, "DIES_WITH_PARENT", DIES_BY_9)
    await children.start(command())
    with pytest.raises(ChildError, match=r"the last time it was killed by signal 9 \(out of memory\? see dmesg\)$"):
        await children.run()


async def test_who_does_not_answer_is_told_of_and_started_anew(
    tmp_path: Path, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever only takes long, or does not listen yet, is let alone; who is well again counts from the beginning."""
    monkeypatch.setattr(module, "DIES_WITH_PARENT", STAYS)
    answers: asyncio.Queue[bool | Exception] = asyncio.Queue()

    async def scripted(port: int, path: str) -> bool:
        assert (port, path) == (7, "/healthz")
        answer = True if answers.empty() else answers.get_nowait()
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(module, "is_well", scripted)
    clock = VirtualClock()
    children = Children(logs=tmp_path, clock=clock, say=told.append)
    await children.start(command(health=7))
    first = children.pid("child")
    log = tmp_path / "child.log"

    async def asked(*given: bool | Exception) -> None:
        for one in given:
            answers.put_nowait(one)
            await clock.advance(2.0)

    await asked(NobodyThereError(), *[False] * 14, True)
    assert told == [f"the child does not answer; its log is {log}", "the child answers again"]
    told.clear()
    await asked(*[False] * 16)
    while children.pid("child") == first:
        await asyncio.sleep(0)
        await clock.advance(0.0)
    assert told == [
        f"the child does not answer; its log is {log}",
        f"the child did not answer for 30 s, was killed, and is started again; its log is {log}",
    ]
    await children.close()


@pytest.mark.parametrize(
    ("answer", "well"), [(b"HTTP/1.1 200 OK\r\n\r\nok\n", True), (b"HTTP/1.1 503 No\r\n\r\n", False), (b"", False)]
)
async def test_only_a_good_answer_is_one(answer: bytes, well: bool) -> None:
    """What it says of itself counts, and an answer that breaks off is none."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert (await reader.readline()) == b"GET /healthz HTTP/1.1\r\n"
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, LOOPBACK) as server:
        port = server.sockets[0].getsockname()[1]
        assert await is_well(port, "/healthz") is well
    with pytest.raises(NobodyThereError):
        await is_well(port, "/healthz")
