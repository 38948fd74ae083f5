"""`aliquot run` is interrupted, its output finds no reader or no room, its pod is taken away: how both end."""

from __future__ import annotations

import signal

import pytest

from aliquot_cli.one_run import INTERRUPTED, LOST
from support.http_api import LONG_S
from support.small_machine import SmallMachine, finished, without_room


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_asks_the_program_to_end(machine: SmallMachine, number: signal.Signals) -> None:
    """It may clean up, says its last words, and its own code is returned."""
    name = f"polite-{number.name.lower()}"
    script = "trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.01; done"
    process = machine.start("run", "--name", name, "--", "sh", "-c", script)
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    code, out, err = finished(process)
    # The shell tells of its own child before.
    assert (code, out.splitlines()[-1]) == (5, "bye")
    assert "stopping it; again: kill it now" in err
    assert name not in machine.pods()


def test_a_second_ctrl_c_kills(machine: SmallMachine) -> None:
    """Who does not listen is not waited for."""
    script = "trap '' TERM; echo ready; while :; do sleep 0.01; done"
    process = machine.start("run", "--name", "deaf", "--", "sh", "-c", script)
    assert process.stdout
    assert process.stderr
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    assert "stopping it" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    code, _, err = finished(process)
    assert (code, err) == (137, "aliquot: deaf: killing it\n")
    assert "deaf" not in machine.pods()


def test_a_program_whose_output_nobody_reads_ends(machine: SmallMachine) -> None:
    """As in `yes | head -1`: no pod goes on that prints for nobody, and nothing is said."""
    forever = "while :; do echo y; sleep 0.01; done"
    with machine.start("run", "--name", "unheard", "--", "sh", "-c", forever) as process:
        assert process.stdout
        assert process.stderr
        assert process.stdout.readline() == "y\n"
        process.stdout.close()
        assert (process.wait(LONG_S), process.stderr.read()) == (141, "")
    machine.until_gone("unheard")


@pytest.mark.parametrize("name", ["roomless", "roomless-quiet"])
def test_output_that_finds_no_room_is_kept_with_the_pod(machine: SmallMachine, name: str) -> None:
    """The program runs to its end, and a script learns that it has not all of it, even one that wants no chatter."""
    quiet = ["--quiet"] if name.endswith("quiet") else []
    done = without_room(machine, "run", *quiet, "--name", name, "--", "echo", "precious")
    assert (done.returncode, "its pod is kept" in done.stderr) == (LOST, True)
    assert machine.api.get(f"/api/v1/namespaces/default/pods/{name}/log").body == "precious\n"


def test_ctrl_c_while_it_waits_takes_the_pod_away(machine: SmallMachine) -> None:
    """Nothing has run, and nothing will."""
    machine.binds.clear()
    try:
        process = machine.start("run", "--name", "gives-up", "--", "true")
        machine.until("gives-up", lambda _: True)
        process.send_signal(signal.SIGINT)
        code, _, _ = finished(process)
    finally:
        machine.binds.set()
    assert code == INTERRUPTED
    assert "gives-up" not in machine.pods()


def test_a_pod_that_others_take_away_is_said_to_be(machine: SmallMachine) -> None:
    """While it waits: it is lost, which is not the program's doing."""
    machine.binds.clear()
    try:
        process = machine.start("run", "--name", "taken", "--", "true")
        machine.until("taken", lambda _: True)
        machine.api.delete("/api/v1/namespaces/default/pods/taken").ok()
        code, _, err = finished(process)
    finally:
        machine.binds.set()
    assert (code, err) == (4, "aliquot: taken: somebody has deleted it\n")
