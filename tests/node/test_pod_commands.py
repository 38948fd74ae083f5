"""`aliquot ps`, `logs` and `stop` before a real API server and a kubelet whose containers are processes."""

from __future__ import annotations

import json
import subprocess

import pytest
import yaml

from support.http_api import LONG_S
from support.small_machine import COMMAND, NODE, SmallMachine, phase
from support.up_process import eventually


def listed(machine: SmallMachine, *arguments: str) -> list[dict[str, object]]:
    """What `ps` says in JSON."""
    rows: list[dict[str, object]] = json.loads(machine.run("ps", "-o", "json", *arguments).stdout)
    return rows


def test_ps_lists_who_runs_and_who_waits(machine: SmallMachine) -> None:
    """With state, what is asked and the reason; who has ended is listed on demand, who asks nothing never."""
    machine.create("runs", "sleep", "1000")
    machine.until("runs", phase("Running"))
    machine.create("waits", "true", schedulingGates=[{"name": "aliquot.dev/queue"}])
    machine.create("over", "true")
    machine.until("over", phase("Succeeded"))
    plain = {"metadata": {"name": "plain"}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    machine.api.post("/api/v1/namespaces/default/pods", plain).ok()
    rows = {row["name"]: row for row in listed(machine, "-a")}
    states = {name: row["state"] for name, row in rows.items() if name in {"runs", "waits", "over", "plain"}}
    assert states == {"runs": "running", "waits": "waiting", "over": "done"}
    assert "over" not in {row["name"] for row in listed(machine)}
    assert rows["runs"]["compute"] == 10
    assert rows["waits"]["place"] == 0
    why = "no node could take it, even if it were empty: no GPU is there yet that can be given"
    assert rows["waits"]["why"] == why


def test_an_empty_table_says_where_else_to_look(machine: SmallMachine) -> None:
    """Beside it, so that scripts read the same as ever; also of a namespace that is not there."""
    nothing = "aliquot: no pods here that ask for a slice; -A shows those of all namespaces\n"
    for where in ("kube-system", "not-there"):
        done = machine.run("ps", "-n", where)
        assert (done.returncode, done.stdout.split()[:2], done.stderr) == (0, ["NAME", "STATE"], nothing)


def test_ps_prints_every_form(machine: SmallMachine) -> None:
    """For people, for scripts, and for other commands."""
    machine.create("shown", "sleep", "1000")
    machine.until("shown", phase("Running"))
    table = machine.run("ps").stdout.splitlines()
    assert table[0].split() == ["NAME", "STATE", "QUEUE", "NODE", "GPU", "COMPUTE", "MEMORY", "USED", "AGE", "WHY"]
    line = next(line for line in table if line.startswith("shown "))
    assert line.split()[1:7] == ["running", "default", NODE, "-", "10", "%"]
    assert "MODEL" in machine.run("ps", "-o", "wide").stdout.splitlines()[0]
    assert machine.run("ps", "-A").stdout.startswith("NAMESPACE")
    assert "pod/shown" in machine.run("ps", "-o", "name").stdout.splitlines()
    # As it is printed there another command takes it.
    assert machine.run("explain", "pod/shown").stdout.startswith("default/shown: ")
    assert yaml.safe_load(machine.run("ps", "-o", "yaml").stdout) == listed(machine)


def test_explain_prints_every_form(machine: SmallMachine) -> None:
    """The same for programs in both of their forms, and names for other commands."""
    machine.create("told", "true", schedulingGates=[{"name": "aliquot.dev/queue"}])
    explained = json.loads(machine.run("explain", "told", "-o", "json").stdout)
    assert explained["pod"] == "default/told"
    assert yaml.safe_load(machine.run("explain", "told", "-o", "yaml").stdout) == explained
    assert machine.run("explain", "told", "-o", "name").stdout == "pod/told\n"
    assert machine.run("explain", "told", "-o", "wide").stdout == machine.run("explain", "told").stdout


def test_ps_of_another_namespace_shows_none_of_this(machine: SmallMachine) -> None:
    """-n is meant as it is said."""
    machine.create("here", "sleep", "1000")
    assert listed(machine, "-n", "elsewhere") == []
    assert "here" in {row["name"] for row in listed(machine, "-n", "default")}


def test_logs_are_printed_as_they_are(machine: SmallMachine) -> None:
    """All of them, or the last lines."""
    machine.create("talks", "sh", "-c", "echo one; echo two; echo three")
    machine.until("talks", phase("Succeeded"))
    assert machine.run("logs", "talks").stdout == "one\ntwo\nthree\n"
    assert machine.run("logs", "--tail", "1", "talks").stdout == "three\n"


def test_logs_are_followed_from_the_start_to_the_end(machine: SmallMachine) -> None:
    """Asked before the pod has a node, it waits; and it ends with the pod."""
    machine.binds.clear()
    try:
        machine.create("followed", "sh", "-c", "echo first; sleep 0.2; echo last")
        process = machine.start("logs", "-f", "followed")
    finally:
        machine.binds.set()
    out, err = process.communicate(timeout=LONG_S)
    assert (process.returncode, out, err) == (0, "first\nlast\n", "")


def test_logs_of_nobody_are_refused(machine: SmallMachine) -> None:
    """Also when they are to be followed: nobody waits for a name that is misspelt."""
    for arguments in (["logs", "nobody"], ["logs", "-f", "nobody"], ["stop", "nobody"], ["explain", "nobody"]):
        done = machine.run(*arguments)
        assert (done.returncode, done.stderr.split(";")[0]) == (3, "aliquot: default/nobody: there is no such pod")


def test_a_container_that_is_not_there_is_said_to_be(machine: SmallMachine) -> None:
    """With the API server's own words."""
    machine.create("single", "sleep", "1000")
    machine.until("single", phase("Running"))
    done = machine.run("logs", "-c", "other", "single")
    assert done.returncode == 3
    assert "container other is not valid for pod single" in done.stderr


def test_stop_waits_until_the_pod_is_gone(machine: SmallMachine) -> None:
    """Its program has its time to end, and the name is free afterwards."""
    machine.create("ends", "sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.01; done")
    machine.until("ends", phase("Running"))
    done = machine.run("stop", "ends", "-o", "name")
    assert (done.returncode, done.stdout) == (0, "pod/ends\n")
    assert "ends" not in machine.pods()


def test_stop_now_kills(machine: SmallMachine) -> None:
    """Who does not listen, at once; those that are not there are named, and the others stopped all the same."""
    machine.create("stubborn", "sh", "-c", "trap '' TERM; while :; do sleep 0.01; done")
    machine.until("stubborn", phase("Running"))
    done = machine.run("stop", "--now", "missing", "stubborn", "-o", "json")
    assert done.returncode == 3
    assert json.loads(done.stdout) == [{"namespace": "default", "name": "stubborn", "gone": True}]
    assert "default/missing: there is no such pod" in done.stderr
    assert "stubborn" not in machine.pods()


def completed(machine: SmallMachine, *words: str) -> list[str]:
    """What a shell would offer for the last word."""
    given = {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1), "_ALIQUOT_COMPLETE": "bash_complete"}
    done = subprocess.run(
        [COMMAND], env=machine.environment(**given), capture_output=True, text=True, timeout=LONG_S, check=False
    )
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.split()]


def test_names_of_pods_and_queues_are_completed(machine: SmallMachine) -> None:
    """As they are at this moment."""
    machine.create("completes-a", "sleep", "1000")
    machine.create("completes-b", "sleep", "1000")
    # A shell is not kept waiting: where the machine is busy it gets no names, and then some.
    eventually(lambda: completed(machine, "aliquot", "stop", "completes-") == ["completes-a", "completes-b"])
    assert completed(machine, "aliquot", "logs", "-n", "elsewhere", "completes-") == []
    assert "ps" in completed(machine, "aliquot", "p")
    assert completed(machine, "aliquot", "queue", "x") == []


def test_completion_is_silent_without_a_server(machine: SmallMachine) -> None:
    """A shell shows whatever is printed in the middle of somebody's line."""
    given = {"KUBECONFIG": "/no-such-file"}
    words = {"COMP_WORDS": "aliquot stop ", "COMP_CWORD": "2", "_ALIQUOT_COMPLETE": "bash_complete"}
    done = subprocess.run(
        [COMMAND],
        env=machine.environment(**given, **words),
        capture_output=True,
        text=True,
        timeout=LONG_S,
        check=False,
    )
    assert (done.stdout.strip(), done.stderr) == ("", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_gets_its_lines(machine: SmallMachine, shell: str) -> None:
    """They name this command and the variable that it listens to."""
    done = machine.run("completion", shell)
    assert done.returncode == 0
    assert "_ALIQUOT_COMPLETE" in done.stdout
