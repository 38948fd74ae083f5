"""`aliquot run` before a real API server and a kubelet whose containers are processes."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from aliquot_cli.one_run import UNHEARD
from support.http_api import LONG_S
from support.small_machine import COMMAND, SmallMachine, finished, phase, without_room


def test_output_and_exit_code_are_the_programs(machine: SmallMachine) -> None:
    """Every byte in its order, errors too, and the code; nothing of ours between, and no pod left."""
    done = machine.run("run", "--name", "speaks", "--", "sh", "-c", "printf 'a\\n\\n  b\\tc'; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, "a\n\n  b\tc", "")
    assert "speaks" not in machine.pods()


def test_much_output_is_whole(machine: SmallMachine) -> None:
    """More than fits into any buffer on the way, with its end."""
    done = machine.run("run", "--", "sh", "-c", "seq 200000; echo end")
    assert done.returncode == 0
    assert done.stdout == "".join(f"{number}\n" for number in range(1, 200_001)) + "end\n"


def test_it_runs_here(machine: SmallMachine, tmp_path: Path) -> None:
    """In the caller's folder, with what of the environment is passed on, and nothing of the rest."""
    given = machine.environment(KEY="secret", GIVEN="by name", LANG="C", VIRTUAL_ENV="/v")
    script = 'pwd; echo "$KEY|$GIVEN|$SAID|$LANG|$VIRTUAL_ENV|$PYTHONUNBUFFERED"'
    done = machine.run(
        "run", "-e", "GIVEN", "-e", "SAID=$(HOME) $$ x=y", "--", "sh", "-c", script, cwd=tmp_path, env=given
    )
    assert done.stdout.splitlines() == [str(tmp_path), "|by name|$(HOME) $$ x=y|C|/v|1"]


def test_dollars_are_the_shells(machine: SmallMachine) -> None:
    """Kubernetes would read `$$` and `$(HOME)` in a command as its own."""
    done = machine.run("run", "--", "sh", "-c", 'a=$$; test -n "$a" && echo "$(echo inner)"')
    assert (done.returncode, done.stdout) == (0, "inner\n")


def test_what_is_asked_stands_in_the_pod(machine: SmallMachine) -> None:
    """Every option where the contract has it; the pod stays when it is to be kept."""
    options = {
        "--compute": "250",
        "--memory": "9001",
        "--gpus": "5",
        "--queue": "team",
        "--model": "A100*",
        "--name": "asks",
    }
    machine.binds.clear()
    try:
        words = [word for pair in options.items() for word in pair]
        detached = machine.run("run", *words, "--detach", "--", "true")
    finally:
        machine.binds.set()
    assert detached.stdout == "asks\n"
    pod = machine.api.get("/api/v1/namespaces/default/pods/asks").ok()
    limits = pod["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"aliquot.dev/compute": "250", "aliquot.dev/memory": "9001"}
    assert pod["metadata"]["annotations"] == {"aliquot.dev/gpus": "5", "aliquot.dev/gpu-model": "A100*"}
    assert pod["metadata"]["labels"] == {"aliquot.dev/queue": "team"}


def test_a_kept_pod_is_there_afterwards(machine: SmallMachine) -> None:
    """With --keep, so that it can be described and its log read."""
    assert machine.run("run", "--keep", "--name", "kept", "--", "echo", "x").stdout == "x\n"
    assert machine.api.get("/api/v1/namespaces/default/pods/kept").ok()["status"]["phase"] == "Succeeded"


def test_whoever_waits_is_told_why(machine: SmallMachine) -> None:
    """The condition's words, each once though the numbers change; then the program's output."""
    path = "/api/v1/namespaces/default/pods/waits"

    def says(reason: str, message: str) -> dict[str, Any]:
        condition = {"type": "aliquot.dev/admitted", "status": "False", "reason": reason, "message": message}
        return {"status": {"conditions": [condition]}}

    machine.binds.clear()
    try:
        process = machine.start("run", "--name", "waits", "--", "echo", "hello")
        machine.until("waits", lambda _: True)
        assert process.stderr
        machine.api.patch(f"{path}/status", says("NoRoom", "no node has room")).ok()
        # From the first word on it misses none.
        lines = [process.stderr.readline()]
        for reason, message in [("NoRoom", "again none"), ("Behind", "others first")]:
            machine.api.patch(f"{path}/status", says(reason, message)).ok()
        lines.append(process.stderr.readline())
    finally:
        machine.binds.set()
    assert finished(process)[:2] == (0, "hello\n")
    assert lines == ["aliquot: waits: waiting: no node has room\n", "aliquot: waits: waiting: others first\n"]


def test_a_pod_that_the_kubelet_refuses_is_lost_with_the_reason(machine: SmallMachine) -> None:
    """It has no exit code, and the kubelet's words are told."""
    done = machine.run("run", "--compute", "200", "--name", "too-much", "--", "true")
    assert done.returncode == 4
    assert re.match(r"aliquot: too-much: it has failed: .*aliquot.dev/compute", done.stderr)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--", "no-such-program"], "no-such-program: there is no such program"),
        (["--workdir", "/no-such", "--", "true"], "/no-such: there is no such folder"),
        (["--env", "NOT_SET_HERE", "--", "true"], "it is not set here"),
        (["--image", "x", "--", "true"], "nothing is pulled here"),
        (["--name", "Bad_Name", "--", "true"], "default/Bad_Name"),
        (["-n", "nowhere", "--", "true"], "nowhere"),
    ],
)
def test_what_can_not_be_is_refused_before_anything_runs(
    machine: SmallMachine, arguments: list[str], told: str
) -> None:
    """With the user's exit code, one line, and what to do."""
    done = machine.run("run", *arguments)
    assert done.returncode == 3
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_run_of_nothing_is_wrong_usage(machine: SmallMachine) -> None:
    """With the exit code that every argument has which is left out."""
    done = machine.run("run")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, "Error: no program is named: write it after --")


def test_a_detached_pod_is_named_though_its_name_finds_no_room(machine: SmallMachine) -> None:
    """It is there, and whoever started it must be able to stop it."""
    done = without_room(machine, "run", "--detach", "--name", "nameless", "--", "true")
    told = "the result can't be written: No space left on device; pod default/nameless is made all the same"
    ends = "`aliquot stop nameless` ends it"
    assert (done.returncode, done.stderr) == (3, f"aliquot: standard output: {told}: {ends}\n")
    assert "nameless" in machine.pods()


def test_a_detached_pod_is_named_though_nobody_reads_its_name(machine: SmallMachine) -> None:
    """The pipe is closed already: the same on the other way to the user."""
    reads, writes = os.pipe()
    os.close(reads)
    argv = [COMMAND, "run", "--detach", "--name", "unread", "--", "true"]
    done = subprocess.run(
        argv, env=machine.environment(), stdout=writes, stderr=subprocess.PIPE, text=True, timeout=LONG_S, check=False
    )
    os.close(writes)
    told = "nobody reads it; pod default/unread is made all the same: `aliquot stop unread` ends it"
    assert (done.returncode, done.stderr) == (UNHEARD, f"aliquot: standard output: {told}\n")


@pytest.mark.parametrize("arguments", ["run -- true", "run --detach -- true", "logs any", "ps", "config"])
def test_a_closed_output_is_one_line(machine: SmallMachine, arguments: str) -> None:
    """Said before anything is made that nobody would hear of."""
    before = machine.pods()
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" {arguments} >&-', COMMAND],
        env=machine.environment(),
        capture_output=True,
        text=True,
        timeout=LONG_S,
        check=False,
    )
    told = "aliquot: standard output: it is closed; send it to another place\n"
    assert (done.returncode, done.stderr, machine.pods()) == (3, told, before)


def test_a_detached_pod_is_printed_in_every_form(machine: SmallMachine) -> None:
    """As the API server has it for programs, as `aliquot ps` lists it for people."""

    def detached(form: str) -> str:
        return machine.run("run", "--detach", "--name", f"in-{form}", "-o", form, "--", "sleep", "1000").stdout

    assert json.loads(detached("json"))["metadata"]["name"] == "in-json"
    assert yaml.safe_load(detached("yaml"))["spec"]["containers"][0]["command"] == ["sleep", "1000"]
    assert detached("name") == "pod/in-name\n"
    heading, line = detached("wide").splitlines()
    assert (heading.split()[:2], line.split()[0], "MODEL" in heading) == (["NAME", "STATE"], "in-wide", True)


def test_detached_it_goes_on_alone(machine: SmallMachine) -> None:
    """The name is printed for other commands."""
    name = machine.run("run", "--detach", "--", "true").stdout.strip()
    assert re.fullmatch(r"true-[a-z0-9]{5}", name)
    pod = machine.until(name, phase("Succeeded"))
    assert json.loads(json.dumps(pod["spec"]))["restartPolicy"] == "Never"
