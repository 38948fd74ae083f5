"""Logs from files: which part of which file, followed to the container's end."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_standalone.apiserver.log_files import LogFiles
from aliquot_standalone.apiserver.logs import LogsMissingError, LogWish
from support.clocks import VirtualClock


class Node:
    """A node's folder of logs, with one container."""

    def __init__(self, folder: Path) -> None:
        self.place = folder / "default_web_u1" / "main"
        self.place.mkdir(parents=True)
        self.clock = VirtualClock()
        self.ended = False
        self.files = LogFiles(
            folder_of=lambda node: folder if node == "n" else None, ended=lambda _: self.ended, clock=self.clock
        )

    def wish(self, **wish: Any) -> LogWish:
        """What is wanted."""
        about = {"namespace": "default", "pod": "web", "uid": "u1", "node": "n", "container": "main"}
        return LogWish(**{**about, **wish})

    async def read(self, **wish: Any) -> bytes:
        """Read to the end."""
        return b"".join([piece async for piece in self.files.read(self.wish(**wish))])


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node whose container was started twice."""
    node = Node(tmp_path)
    (node.place / "0.log").write_bytes(b"old\n")
    (node.place / "1.log").write_bytes(b"one\ntwo\rtwo\nthree\n")
    return node


@pytest.mark.parametrize(
    ("wish", "text"),
    [
        ({}, b"one\ntwo\rtwo\nthree\n"),
        ({"previous": True}, b"old\n"),
        ({"tail": 1}, b"three\n"),
        ({"tail": 2}, b"two\rtwo\nthree\n"),
        ({"tail": 9}, b"one\ntwo\rtwo\nthree\n"),
        ({"tail": 0}, b""),
        ({"limit": 5}, b"one\nt"),
        ({"tail": 1, "limit": 2}, b"th"),
    ],
)
async def test_the_part_that_is_wanted(node: Node, wish: dict[str, Any], text: bytes) -> None:
    """The newest start or the one before, from the end or up to a size."""
    assert await node.read(**wish) == text


@given(text=st.text(alphabet="ab\n\r", max_size=40).map(str.encode), lines=st.integers(0, 6))
def test_a_tail_is_the_last_lines(tmp_path_factory: pytest.TempPathFactory, text: bytes, lines: int) -> None:
    """Whatever was printed: as many lines as wanted, whether or not the last is finished."""
    node = Node(tmp_path_factory.mktemp("logs"))
    (node.place / "0.log").write_bytes(text)
    whole = [line + b"\n" for line in text.split(b"\n")]
    whole[-1] = whole[-1].removesuffix(b"\n")
    kept = [line for line in whole if line]
    assert asyncio.run(node.read(tail=lines)) == b"".join(kept[len(kept) - lines :] if lines < len(kept) else kept)


async def test_a_long_tail_is_found(node: Node) -> None:
    """Lines that lie far apart in a large file are found from its end."""
    (node.place / "2.log").write_bytes(b"".join(b"%d " % number + b"x" * 50_000 + b"\n" for number in range(10)))
    tail = await node.read(tail=3)
    assert [line.split()[0] for line in tail.splitlines()] == [b"7", b"8", b"9"]


async def test_a_log_is_followed_to_the_containers_end(node: Node) -> None:
    """What is printed while it is followed arrives, the last words too."""
    pieces = node.files.read(node.wish(follow=True, tail=1))
    assert await anext(pieces) == b"three\n"
    waiting = asyncio.ensure_future(anext(pieces))
    await asyncio.sleep(0)
    with (node.place / "1.log").open("ab") as file:
        file.write(b"last words\n")
    node.ended = True
    await node.clock.advance(1.0)
    assert await waiting == b"last words\n"
    assert [piece async for piece in pieces] == []


@pytest.mark.parametrize("wish", [{"node": ""}, {"node": "other"}, {"container": "side"}, {"uid": "u2"}])
async def test_a_log_that_is_not_there(node: Node, wish: dict[str, Any]) -> None:
    """It is said before anything else is."""
    with pytest.raises(LogsMissingError):
        await node.read(**wish)
    (node.place / "1.log").unlink()
    with pytest.raises(LogsMissingError, match="previous terminated container"):
        await node.read(previous=True)


async def test_what_ends_soon_is_seen_soon_and_silence_costs_little(node: Node) -> None:
    """A short program is not waited for a tenth of a second longer; in long silence ten looks a second are enough."""
    pieces = node.files.read(node.wish(follow=True, tail=1))
    await anext(pieces)
    looks = []

    def look(_: LogWish) -> bool:
        looks.append(node.clock.monotonic())
        return False

    node.files._ended = look
    waiting = asyncio.ensure_future(anext(pieces, None))
    await node.clock.advance(5.0)
    assert looks[0] <= 0.01
    assert all(later - at <= 0.006 + at / 6 for at, later in pairwise(looks)), "waited long for what ended soon"
    assert 9 <= len([at for at in looks if at > 4.0]) <= 11
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
