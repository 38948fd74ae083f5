"""`aliquot top` on a terminal that is played: keys in, screens out."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aliquot_cli.top.app import TopApp
from aliquot_cli.top.frame import Choice
from aliquot_cli.top.widgets import Head, Rows, Telling
from aliquot_scheduler.page.model import State
from support.top_scene import busy, state_of, waits

SMALL = (80, 24)


class Stage:
    """An app before a cluster that a test changes."""

    def __init__(self, state: State | None = None, **more: Any) -> None:
        self.state: State | None = state or busy(nodes=4)
        self.looks = 0
        self.app = TopApp(look=self.look, source="here", **{"every": 3600.0, "choice": Choice(), **more})

    async def look(self) -> State | None:
        """What there is."""
        self.looks += 1
        return self.state

    def screen(self) -> list[str]:
        """What stands on it, without colours."""
        height = self.app.size.height
        head, rows = self.app.query_one(Head), self.app.query_one(Rows)
        return [head.render_line(y).text for y in range(4)] + [rows.render_line(y).text for y in range(height - 5)]


async def test_it_fits_the_smallest_terminal() -> None:
    """80 by 24: sums, titles, a screenful of bars."""
    stage = Stage()
    async with stage.app.run_test(size=SMALL):
        screen = stage.screen()
    assert screen[0].startswith("aliquot")
    assert "[1:GPUs]" in screen[2]
    assert screen[3].split()[:2] == ["NODE", "GPU"]
    assert all(len(line) <= 80 for line in screen)
    assert screen[4].startswith("a100-001")


async def test_the_smallest_terminal_shows_how_to_leave() -> None:
    """Every key of the foot is seen whole, the last one too."""
    stage = Stage()
    async with stage.app.run_test(size=SMALL) as pilot:
        while not (keys := list(stage.app.query("FooterKey"))) or not all(key.region.width for key in keys):
            await pilot.pause()
        ends = {str(getattr(key, "description", "")): key.region.right for key in keys}
    assert list(ends) == ["sort", "reverse", "filter", "hold", "quit"]
    assert 0 < max(ends.values()) <= SMALL[0]


@pytest.mark.parametrize(("key", "title"), [("2", "[2:queues]"), ("3", "[3:pods]"), ("4", "[4:waiting]")])
async def test_digits_change_the_view(key: str, title: str) -> None:
    """Each has its own."""
    stage = Stage()
    async with stage.app.run_test(size=SMALL) as pilot:
        await pilot.press(key)
        assert title in stage.screen()[2]
        await pilot.press("1")
        assert "[1:GPUs]" in stage.screen()[2]


async def test_keys_sort_and_turn() -> None:
    """The order is said, and the first row is another one."""
    stage = Stage()
    async with stage.app.run_test(size=SMALL) as pilot:
        await pilot.press("tab", "s")
        assert "by used" in stage.screen()[2]
        first = stage.screen()[4]
        await pilot.press("r")
        assert "▲" in stage.screen()[2]
        assert stage.screen()[4] != first


async def test_words_filter_while_they_are_typed() -> None:
    """And escape brings all back."""
    stage = Stage()
    async with stage.app.run_test(size=SMALL) as pilot:
        await pilot.press("slash", *"a100-003", "enter")
        assert "only 'a100-003': 8" in stage.screen()[2]
        assert stage.screen()[4].startswith("a100-003")
        await pilot.press("2")
        await pilot.press("1", "escape")
        assert "only" not in stage.screen()[2]


async def test_long_lists_are_scrolled() -> None:
    """By lines, by screens and to the end; a change of the cluster does not move them."""
    stage = Stage()
    async with stage.app.run_test(size=SMALL) as pilot:
        await pilot.press("end")
        await pilot.pause()
        last = stage.screen()
        assert any(line.startswith("a100-004") and line.split()[1] == "7" for line in last)
        stage.state = busy(nodes=4, seed=5)
        await stage.app._see()
        assert stage.screen()[4].split()[:2] == last[4].split()[:2]
        await pilot.press("home")
        await pilot.pause()
        assert stage.screen()[4].startswith("a100-001")


async def test_space_holds_the_picture() -> None:
    """Nothing is asked while somebody reads; a filter still works on what was held."""
    stage = Stage()
    async with stage.app.run_test(size=SMALL) as pilot:
        await pilot.press("space")
        looks = stage.looks
        await stage.app._see()
        assert (stage.looks, "held" in stage.screen()[2]) == (looks, True)
        await pilot.press("space")
        await stage.app._see()
        assert stage.looks == looks + 1


def crowd(*, without: int = -1) -> State:
    """Forty who wait, each for a reason that fits no row of a small terminal."""
    whole = "; ".join(f"2 nodes have room, but not for {what}" for what in ("the gang", "its memory", "its queue"))
    return state_of(
        [],
        waiting=[
            waits(f"team/w{n:02}", queue="vision", compute=100, since=float(n), why=f"{whole}: reason {n:02} ends")
            for n in range(40)
            if n != without
        ],
    )


def told(stage: Stage) -> str:
    """What stands beneath the rows."""
    telling = stage.app.query_one(Telling)
    if not telling.display:
        return ""
    return " ".join(telling.render_line(y).text.strip() for y in range(telling.size.height))


def marked(stage: Stage) -> list[str]:
    """The rows in sight that are marked."""
    rows = stage.app.query_one(Rows)
    strips = [rows.render_line(y) for y in range(rows.size.height)]
    return [strip.text.split()[0] for strip in strips if any(one.style and one.style.reverse for one in strip)]


@pytest.mark.parametrize(
    ("keys", "number"),
    [([], 0), (["down", "down", "up"], 1), (["end"], 39), (["end", "down", "up"], 38), (["pagedown", "home"], 0)],
    ids=["first", "by lines", "last", "past the last", "back"],
)
async def test_the_marked_one_who_waits_tells_its_whole_reason(keys: list[str], number: int) -> None:
    """Beneath the rows, of which none has room for it; the mark is in sight."""
    stage = Stage(crowd())
    async with stage.app.run_test(size=SMALL) as pilot:
        await pilot.press("4", *keys)
        # Another instant may bring what it tells, its place beneath the rows, and the rows that are in sight then.
        while not told(stage).endswith("ends") or not marked(stage):
            await pilot.pause()
        assert (told(stage).split()[0], marked(stage)) == (f"team/w{number:02}", [f"team/w{number:02}"])
        assert f"its memory; 2 nodes have room, but not for its queue: reason {number:02} ends" in told(stage)
        await pilot.press("1")
        assert (told(stage), marked(stage)) == ("", [])


async def test_the_mark_stays_with_whom_it_marks() -> None:
    """Others come and go above it; when it has gone itself, the first is marked."""
    stage = Stage(crowd())
    async with stage.app.run_test(size=SMALL) as pilot:
        await pilot.press("4", "down", "down")
        stage.state = crowd(without=0)
        await stage.app._see()
        assert marked(stage) == ["team/w02"]
        stage.state = crowd(without=2)
        await stage.app._see()
        assert marked(stage) == ["team/w00"]


async def test_a_click_marks_a_row() -> None:
    """The one that is seen there, however far the list is scrolled."""
    stage = Stage(crowd())
    async with stage.app.run_test(size=SMALL) as pilot:
        await pilot.press("4", "end")
        while marked(stage) != ["team/w39"]:
            await pilot.pause()
        seen = stage.app.query_one(Rows).render_line(3).text.split()[0]
        await pilot.click(Rows, offset=(5, 3))
        while marked(stage) != [seen]:
            await pilot.pause()
    assert seen not in {"team/w03", "team/w39"}


async def test_when_nobody_answers_the_last_word_stays() -> None:
    """And is said to be that."""
    stage = Stage()
    async with stage.app.run_test(size=(120, 24)):
        stage.state = None
        await stage.app._see()
        screen = stage.screen()
    assert "nobody answers" in screen[2]
    assert screen[4].startswith("a100-001")


async def test_q_ends_it() -> None:
    """At once."""
    stage = Stage()
    async with stage.app.run_test(size=SMALL) as pilot:
        await pilot.press("q")
    assert stage.app.return_code == 0


@pytest.mark.parametrize("before", [[], ["slash", "x"]], ids=["rows", "filter"])
async def test_ctrl_c_ends_it_too(before: list[str]) -> None:
    """Wherever one is, as everywhere else on a terminal."""
    stage = Stage()
    async with stage.app.run_test(size=SMALL) as pilot:
        await pilot.press(*before, "ctrl+c")
    assert stage.app.return_code == 0


async def test_without_other_signs_it_is_drawn_in_ascii() -> None:
    """For a terminal that knows nothing else."""
    stage = Stage(ascii_only=True)
    async with stage.app.run_test(size=SMALL):
        assert "".join(stage.screen()).isascii()


async def test_a_large_cluster_is_shown_without_stutter() -> None:
    """1,000 GPUs and thousands of pods: a change of everything takes a small part of a second on the screen."""
    stage = Stage(busy(nodes=125))
    async with stage.app.run_test(size=(160, 50)) as pilot:
        loop = asyncio.get_running_loop()
        began = loop.time()
        for _ in range(5):
            await stage.app._see()
            await pilot.press("pagedown")
        # 60 ms each on a quiet machine.
        assert loop.time() - began < 10.0
        assert stage.screen()[0].startswith("aliquot")
