"""`aliquot run` before a real API server and a kubelet whose containers are processes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from aliquot_cli.attending import Attending
from aliquot_cli.cluster import Connection, Place
from aliquot_cli.creating import create
from aliquot_cli.one_run import INTERRUPTED, LOST, UNHEARD
from aliquot_cli.pod_output import Log, print_all
from aliquot_cli.submitting import CONTAINER, Wish, manifest
from aliquot_core.names import Names
from aliquot_kube.clock import SystemClock
from aliquot_kube.errors import ServerTroubleError, UnreachableError
from aliquot_kube.plain import PlainServer, PlainTransport
from aliquot_kube.questions import Question, Response, Transport
from aliquot_kube.resources import PODS
from aliquot_standalone.kubelet.log_limits import MOST, hold_to
from support.http_api import LONG_S
from support.small_machine import COMMAND, SmallMachine, phase, small_machine

GATE = [{"name": "aliquot.dev/queue"}]
_MANY = 40


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallMachine]:
    """One machine for all tests: each has pods of its own."""
    with small_machine(tmp_path_factory.mktemp("machine")) as running:
        yield running


def finished(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """How it ended, and what it printed."""
    out, err = process.communicate(timeout=LONG_S)
    return process.returncode, out, err


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


def without_room(machine: SmallMachine, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command whose output goes to a full disk."""
    argv = [sys.executable, "-m", "aliquot_cli.main", *arguments]
    with Path("/dev/full").open("wb") as full:
        return subprocess.run(
            argv, stdout=full, stderr=subprocess.PIPE, env=machine.environment(), text=True, timeout=LONG_S, check=False
        )


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
