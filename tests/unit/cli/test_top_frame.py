"""What stands on the screen of `aliquot top`."""

from __future__ import annotations

import time

import msgspec
import pytest

from aliquot_cli.top.frame import Choice, Frame, wrapped
from aliquot_cli.top.ink import cells, plain
from aliquot_cli.top.tabular import Told
from aliquot_cli.top.views import GPUS, PODS, QUEUES, TABLES, WAITING
from aliquot_core.inventory import Health
from aliquot_scheduler.page.model import NodeShown, State, StrayShown
from support.top_scene import busy, gpu, piece, state_of, waits

NODE = NodeShown(
    name="n1",
    out="",
    driver="580",
    gpus=(
        gpu("n1", 0, [piece("team/a", 30, used=15), piece("team/b", 50, used=50, queue="vision")]),
        gpu("n1", 1, health=Health.SICK, reason="XID 79"),
        gpu("n1", 2, [piece("team/c", 100, used=10)]),
    ),
)
STATE = state_of([NODE], waiting=[waits("team/w", queue="vision", compute=800, since=0.0, why="no room")])


def frame(table: object = GPUS, *, state: State = STATE, **choice: object) -> Frame:
    """A frame of one table."""
    return Frame(state=state, choice=msgspec.convert({"table": TABLES.index(table), **choice}, Choice), source="here")


def texts(made: Frame, *, width: int = 100) -> list[str]:
    """All of it as text."""
    return [plain(line) for line in [*made.head(width), *(made.line(n, width) for n in range(len(made)))]]


def test_gpus_are_bars_with_their_numbers() -> None:
    """Granted, used, memory and whose; a sick one says why."""
    lines = texts(frame())
    assert lines[0].endswith("1 node  3 GPUs, 1 sick  3 run  1 waits")
    assert lines[1] == "compute 60 % granted, 25 % used   memory 60 % granted, 25 % used"
    assert "[1:GPUs]" in lines[2]
    assert lines[4].split()[:3] == ["n1", "0", "A100-SXM4-80GB"]
    assert lines[4].split()[-2:] == ["a,", "b"]
    assert lines[5].endswith("XID 79")


def test_what_is_held_without_a_grant_is_not_free() -> None:
    """Its share stands above, and each GPU of its node says whose it is, after its own pods."""
    stray = StrayShown(pod="team/x", compute=75, memory=4 * 1024, best_effort=0)
    held = state_of([msgspec.structs.replace(NODE, strays=(stray,))])
    totals = msgspec.structs.replace(held.totals, compute_stray=75, memory_stray=4 * 1024)
    lines = texts(frame(state=msgspec.structs.replace(held, totals=totals)), width=240)
    assert "without a grant 25 % of compute, 2 % of memory" in lines[1]
    assert "a, b; team/x holds 75 % of compute, 4.0 GiB of this node without a grant" in lines[4]
    assert lines[5].endswith("XID 79")
    assert "without a grant" not in "".join(texts(frame()))


def test_nodes_that_nobody_can_hear_are_not_out() -> None:
    """Each is counted by what is known of it."""
    totals = msgspec.structs.replace(STATE.totals, nodes=5, nodes_out=1, nodes_unheard=3)
    lines = texts(frame(state=msgspec.structs.replace(STATE, totals=totals)))
    assert "5 nodes, 1 out, 3 unheard" in lines[0]


def test_what_is_free_of_a_node_that_is_out_is_nobody_s() -> None:
    """Its rows say so, and why; in a bar it is no dot."""
    out = msgspec.structs.replace(NODE, name="n1", out="its agent is not heard of any more")
    state = state_of([out])
    lines = texts(frame(state=state), width=240)
    assert "out: its agent is not heard of any more; a, b" in lines[4]
    assert "·" not in lines[4]
    assert "xxx" in lines[4]
    assert "xxx" not in "".join(texts(frame(), width=160))
    assert "·" in texts(frame(), width=160)[4]


def test_an_instance_of_a_card_is_named_by_its_kind() -> None:
    """Those of one card have its number; what tells them apart is what they are of it."""
    part = msgspec.structs.replace(gpu("n1", 0), model="NVIDIA A100-SXM4-80GB MIG 3g.40gb", whole=42)
    lines = texts(frame(state=state_of([msgspec.structs.replace(NODE, gpus=(part,))])))
    assert lines[4].split()[:3] == ["n1", "0", "MIG-3g.40gb"]


def test_pods_have_what_they_use_of_what_they_have() -> None:
    """Over all their GPUs."""
    lines = texts(frame(PODS))
    assert [line.split()[0] for line in lines[4:]] == ["team/a", "team/b", "team/c"]
    assert "15/30" in lines[4]


def test_who_waits_is_listed_with_the_reason() -> None:
    """In the order in which it is told."""
    assert texts(frame(WAITING))[4].endswith("no room")


LONG = "it asks 100 % of compute and 81286 MiB; queue research uses 200 % of the 200 % that it may have"


def test_of_who_waits_all_of_the_reason_is_printed() -> None:
    """Beneath the row where that has no room for it, and nowhere half of it."""
    pods = [
        waits(f"team/w{at}", queue="vision", compute=800, since=0.0, why=why) for at, why in enumerate((LONG, "short"))
    ]
    made = frame(WAITING, state=state_of([NODE], waiting=pods))
    lines = [[plain(line) for line in made.whole(number, 80)] for number in range(2)]
    assert len(lines[1]) == 1
    assert lines[1][0].rstrip().endswith("short")
    first, *rest = lines[0]
    assert "it asks" not in first
    assert " ".join(" ".join(rest).split()) == LONG
    assert all(len(line) <= 80 for line in lines[0])
    assert len(made.whole(0, 240)) == 1


def test_where_it_is_from_is_told_whole_or_not_at_all() -> None:
    """And what is paused before what may be old by then."""
    paused = msgspec.structs.replace(STATE, paused="the API server has not been heard for 9 s")
    made = frame(WAITING, state=paused)
    assert texts(made)[1].startswith("paused: the API server has not been heard for 9 s  compute")
    told = [texts(made, width=width)[2] for width in range(50, 80)]
    assert {"here" in line for line in told} == {True, False}
    assert not [line for line in told if line.endswith(("h…", "he…", "her…"))]


def test_queues_are_bars_too() -> None:
    """What they use, what is theirs and what they borrow."""
    lines = texts(frame(QUEUES))
    assert lines[4].split()[0] == "research"
    assert "130" in lines[4]


def test_use_that_nobody_tells_is_said_to_be_unknown() -> None:
    """It is not nothing."""
    node = NodeShown(name="n1", out="", driver="", gpus=(gpu("n1", 0, [piece("team/a", 50)]),))
    lines = texts(frame(state=state_of([node], used=False)))
    assert "use is not known here" in lines[1]
    assert "used" not in lines[1].replace("use is", "")
    assert "▓" in lines[4]


def test_a_filter_leaves_rows_that_have_all_words() -> None:
    """In whatever case, of whatever the row is about; what is left is counted."""
    found = frame(filter="VISION a100")
    assert len(found) == 1
    assert "only 'VISION a100': 1" in texts(found)[2]
    assert len(frame(filter="sick")) == 1
    assert len(frame(filter="nothing")) == 0


def test_rows_are_sorted_and_turned_round() -> None:
    """By what was chosen; sorting goes round."""
    by_granted = frame().choice.next_order()
    first = frame().chosen(by_granted)
    assert texts(first)[4].split()[1] == "2"
    turned = first.chosen(by_granted.turned())
    assert texts(turned)[4].split()[1] == "1"
    choice = Choice()
    for _ in GPUS.orders:
        choice = choice.next_order()
    assert choice.order == 0


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("width", [40, 80, 133, 300])
def test_every_line_fits_the_terminal(table: object, width: int) -> None:
    """Of each table at each width: a line that breaks would push all others down."""
    made = frame(table, state=busy(nodes=2))
    lines = [*made.head(width), *(made.line(n, width) for n in range(len(made) + 1))]
    assert {sum(cells(span.text) for span in line) for line in lines} == {width}


@pytest.mark.parametrize(
    ("text", "shown"),
    [("aaaa bbb ccc", ["team/w", "aaaa bbb", "ccc"]), ("a " * 20, ["team/w", "a a a a", "a a a …"])],
    ids=["whole", "cut"],
)
def test_a_sentence_is_broken_between_words(text: str, shown: list[str]) -> None:
    """Under whose it is; one that is too long even so is said to be cut."""
    lines = wrapped(Told(of="team/w", text=text), width=8, most=3)
    assert [plain(line) for line in lines] == shown
    assert {sum(cells(span.text) for span in line) for line in lines} == {8}


@pytest.mark.parametrize("table", TABLES)
def test_a_screenful_of_a_large_cluster_is_drawn_quickly(table: object) -> None:
    """1,000 GPUs: sorting and drawing what is seen takes a small part of a second, however long the list is."""
    state = busy(nodes=125)
    began = time.process_time()
    made = frame(table, state=state, order=1, filter="a")
    for number in range(50):
        made.line(number, 160)
    # 30 ms on a quiet machine.
    assert time.process_time() - began < 0.5


def test_what_others_wrote_moves_no_cursor() -> None:
    """A pod's condition may hold anything."""
    said = waits("team/w", queue="q", compute=1, since=0.0, why="\033[2J\u202eboo\n\n")
    lines = texts(frame(WAITING, state=state_of([NODE], waiting=[said])))
    assert lines[4].endswith("?[2J?boo??")
    told = wrapped(Told(of="team/\033w", text=said.why), width=40, most=3)
    assert [plain(line) for line in told] == ["team/?w", "?[2J?boo??"]
