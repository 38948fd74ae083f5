"""What `aliquot run` decides, in whatever order watch, log and Ctrl-C come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from aliquot_cli.one_run import INTERRUPTED, KILLED, LOST, Action, Delete, End, OneRun, ReadLog, Say, Warn
from aliquot_core.names import Names
from aliquot_core.objects import Pod

NAMES = Names()
Step = Callable[[OneRun], Iterator[Action]]


def pod(phase: str = "Pending", *, node: str = "", gates: Sequence[str] = (), state: Any = None, **status: Any) -> Pod:
    """A pod as the watch tells of it."""
    statuses = [{"name": "main", "state": state}] if state else []
    body = {
        "metadata": {"name": "x", "uid": "u"},
        "spec": {"nodeName": node, "schedulingGates": [{"name": gate} for gate in gates]},
        "status": {"phase": phase, "containerStatuses": statuses, **status},
    }
    return msgspec.convert(body, Pod)


def ended(code: int) -> Pod:
    """A pod whose program has ended."""
    return pod("Failed" if code else "Succeeded", node="n", state={"terminated": {"exitCode": code}})


RUNNING = pod("Running", node="n", state={"running": {}})
STARTING = pod(node="n", state={"waiting": {"reason": "ContainerCreating"}})


def condition(reason: str, message: str) -> Pod:
    """A pod that waits for its turn."""
    said = {"type": NAMES.admitted, "status": "False", "reason": reason, "message": message}
    return pod(gates=[NAMES.gate], conditions=[said])


def test_a_run_from_turn_to_end() -> None:
    """Why it waits is said once for each reason, the log is followed, and the program's code is the end."""
    run = OneRun(names=NAMES)
    assert list(run.seen(condition("NoRoom", "no room: 3 of 4"))) == [Say(text="waiting: no room: 3 of 4")]
    assert list(run.seen(condition("NoRoom", "no room: 4 of 4"))) == []
    assert list(run.placed("place 2")) == [Say(text="place 2")]
    assert list(run.placed("place 2")) == []
    assert list(run.seen(STARTING)) == []
    assert list(run.seen(RUNNING)) == [ReadLog(follow=True)]
    assert list(run.seen(RUNNING)) == []
    assert list(run.seen(ended(3))) == []
    assert list(run.log_ended()) == [End(code=3)]


def test_who_asks_more_than_any_node_has_is_told_what_to_do() -> None:
    """Once: it would wait for ever, which a cluster that grows may mend and this one does not."""
    run = OneRun(names=NAMES)
    first, advice = run.seen(condition("NeverFits", "it needs 9 GPUs of one node"))
    assert first == Say(text="waiting: it needs 9 GPUs of one node")
    assert isinstance(advice, Say)
    assert "Ctrl-C takes it back" in advice.text
    assert list(run.seen(condition("NeverFits", "it needs 9 GPUs of one node, and none has more than 7"))) == []
    assert list(run.seen(condition("NoRoom", "no room"))) == [Say(text="waiting: no room")]


def test_one_that_had_ended_when_it_was_seen_is_read_once() -> None:
    """Nothing more can come: the log is not followed."""
    run = OneRun(names=NAMES)
    assert list(run.seen(ended(0))) == [ReadLog(follow=False)]
    assert list(run.log_ended()) == [End(code=0)]


def test_what_keeps_the_node_from_starting_it_is_said() -> None:
    """A slice that is not ready yet, or that the node does not honour."""
    state = {"waiting": {"reason": "CreateContainerConfigError", "message": "over-granted"}}
    run = OneRun(names=NAMES)
    assert list(run.seen(pod(node="n", state=state))) == [Say(text="starting: over-granted")]


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        (pod("Failed", reason="Evicted", message="out of disk"), "it has failed: out of disk"),
        (pod("Failed", reason="UnexpectedAdmissionError"), "it has failed: UnexpectedAdmissionError"),
    ],
)
def test_a_pod_that_never_ran_is_lost(seen: Pod, told: str) -> None:
    """It has no code of its own, and the reason is told."""
    assert list(OneRun(names=NAMES).seen(seen)) == [Warn(text=told), End(code=LOST)]


@pytest.mark.parametrize(("interrupts", "code"), [(0, LOST), (1, INTERRUPTED), (2, KILLED)])
def test_the_code_of_a_pod_that_is_gone_says_who_ended_it(interrupts: int, code: int) -> None:
    """Somebody else, Ctrl-C, or a second one."""
    run = OneRun(names=NAMES)
    for _ in range(interrupts):
        list(run.interrupted())
    assert list(run.gone())[-1] == End(code=code)


@pytest.mark.parametrize(("own", "code"), [(0, LOST), (3, 3)])
def test_a_full_disk_ends_no_program_but_is_no_success(own: int, code: int) -> None:
    """It is said once, the pod runs to its end and is kept, and a script that goes by the code is not misled."""
    run = OneRun(names=NAMES)
    assert list(run.seen(RUNNING)) == [ReadLog(follow=True)]
    assert [type(one) for one in run.unwritten("no space left")] == [Warn]
    assert list(run.log_ended()) == []
    assert run.is_unwritten
    assert list(run.seen(ended(own))) == [End(code=code)]


def test_a_program_that_ran_out_of_memory_is_told_so() -> None:
    """Its code is returned all the same; 137 alone would have its user look for who killed it."""
    run = OneRun(names=NAMES)
    starved = pod("Failed", node="n", state={"terminated": {"exitCode": 137, "reason": "OOMKilled"}})
    told, read = run.seen(starved)
    assert told == Warn(text="it was killed for more memory than its limit")
    assert read == ReadLog(follow=False)
    assert list(run.log_ended()) == [End(code=137)]


def test_each_ctrl_c_is_less_patient() -> None:
    """Gracefully, at once, and then nobody is waited for."""
    run = OneRun(names=NAMES)
    list(run.seen(RUNNING))
    acts = [list(run.interrupted())[-1] for _ in range(3)]
    assert acts == [Delete(now=False), Delete(now=True), End(code=KILLED)]


def test_ctrl_c_after_the_end_takes_nothing_back() -> None:
    """The code is known: only the rest of the log is awaited."""
    run = OneRun(names=NAMES)
    list(run.seen(RUNNING))
    list(run.seen(ended(0)))
    assert list(run.interrupted()) == []
    assert list(run.log_ended()) == [End(code=0)]


SEEN: list[Step] = [
    lambda run: run.seen(condition("NoRoom", "x")),
    lambda run: run.seen(STARTING),
    lambda run: run.seen(RUNNING),
    lambda run: run.seen(ended(0)),
    lambda run: run.seen(ended(9)),
    lambda run: run.interrupted(),
    lambda run: run.placed("y"),
    lambda run: run.gone(),
]


_INTERRUPT, _FINISH = 5, {3, 4, 7}


@given(st.lists(st.sampled_from(range(len(SEEN))), max_size=12))
def test_it_ends_once_all_is_read_and_not_before(steps: list[int]) -> None:
    """However events come: one log at a time, no end before it is read, nothing deleted unasked."""
    run, reading, interrupts, over, finished = OneRun(names=NAMES), 0, 0, False, False
    for step in steps:
        interrupts += step == _INTERRUPT
        finished = finished or step in _FINISH
        for act in SEEN[step](run):
            reading += isinstance(act, ReadLog)
            assert not isinstance(act, Delete) or interrupts
            over = over or isinstance(act, End)
        assert over == ((finished and not reading) or interrupts >= 3)
        if over:
            return
    assert reading <= 1
    if reading:
        assert any(isinstance(act, End) for act in run.log_ended()) == finished
