"""`aliquot up`, as its users run it: real processes, real gRPC, the real centre, simulated GPUs."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from aliquot_core.grant import decode_grant
from aliquot_standalone.plan import SIMULATED
from support.endpoints import short_folder
from support.fake_nvml import FakeNvml
from support.gpu_contract import MODELS
from support.http_api import HttpApi
from support.up_process import (
    ALIQUOT,
    NAMES,
    ONE,
    PODS,
    aliquot,
    eventually,
    naming,
    running_up,
)

EVENTS = "/api/v1/namespaces/default/events"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
MIXED = "8xA100-80GB,2x4xL40S"


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where one `aliquot up` keeps everything; short, for unix sockets."""
    with short_folder() as root:
        yield root / "home"


def test_a_pod_gets_its_slice_and_runs_as_a_process(folder: Path) -> None:
    """Gated, let in by the queues, placed by the loop, granted in the binding, and told its slice."""
    with running_up(folder) as up:
        up.run("one", "sh", "-c", "echo $ALIQUOT_GPUS, $ALIQUOT_COMPUTE %, $ALIQUOT_MEMORY MiB")
        pod = up.until("one", "Succeeded", "Failed")
        assert pod["status"]["phase"] == "Succeeded"
        (part,) = decode_grant(pod["metadata"]["annotations"][NAMES.grant]).containers["main"].slices
        assert up.log("one") == f"{part.gpu}, 30 %, 8000 MiB\n"


def test_a_pod_that_needs_an_image_is_told_so_in_an_event(folder: Path) -> None:
    """Where `kubectl describe pod` shows it, in a whole sentence: its status there is one word."""
    with running_up(folder, gpus="1xT4") as up:
        up.api.post(
            PODS, {"metadata": {"name": "bare"}, "spec": {"containers": [{"name": "main", "image": "cuda"}]}}
        ).ok()
        with up.api.watch(EVENTS, fieldSelector="involvedObject.name=bare") as watch:
            event = watch.next()["object"]
            while event["reason"] != "Failed":
                event = watch.next()["object"]
            assert "has printed nothing yet: default/bare: container main names no command, and its" in up.log("bare")
    assert event["type"] == "Warning"
    assert "its image 'cuda' is not pulled" in event["message"]
    assert "give `command`" in event["message"]


def test_a_machine_with_gpus_is_a_node_of_its_own(folder: Path, fake_nvml_library: Path) -> None:
    """Its GPUs are asked through NVML, and what a slice is of is one of them."""
    folder.parent.joinpath("nvml").mkdir()
    nvml = FakeNvml(library=fake_nvml_library, folder=folder.parent / "nvml")
    nvml.install(MODELS)
    # The stand-in is a driver's library only: of a real driver containers need more.
    settings = folder.parent / "aliquot.toml"
    settings.write_text('[agent]\ndriver_files = "simulated"\n')
    environment = {**os.environ, **nvml.environment()}
    with running_up(folder, "--config", str(settings), gpus="nvml", environment=environment) as up:
        up.run("one", "sh", "-c", "echo $ALIQUOT_GPUS")
        up.until("one", "Succeeded")
        assert up.log("one").strip() in {gpu.uuid for gpu in nvml.gpus}
        assert up.stop() == 0


def test_what_keeps_the_gpus_from_being_given_is_said_and_waited_for_by_nobody(
    folder: Path, fake_nvml_library: Path
) -> None:
    """The agent's own sentence; once it is mended, what was found the last time ends nothing."""
    settings = folder.parent / "aliquot.toml"
    settings.write_text('[agent]\ndriver_files = "simulated"\n')
    nowhere = {**os.environ, "ALIQUOT_CONFIG": str(settings), "LD_LIBRARY_PATH": "/nowhere"}
    done = aliquot("up", "--gpus", "nvml", "--port", "0", "--page-port", "0", folder=folder, environment=nowhere)
    assert done.returncode == 4
    assert "no slices are offered: NVML: libnvidia-ml.so.1 is not found; install the NVIDIA driver" in done.stderr
    folder.parent.joinpath("nvml").mkdir()
    nvml = FakeNvml(library=fake_nvml_library, folder=folder.parent / "nvml")
    nvml.install(MODELS)
    environment = {**os.environ, **nvml.environment()}
    with running_up(folder, "--config", str(settings), gpus="nvml", environment=environment) as up:
        assert up.stop() == 0


def test_a_setting_that_no_part_could_use_is_found_before_anything_starts(folder: Path) -> None:
    """Of whichever section: the processes that read it could only die of it, again and again."""
    settings = folder.parent / "aliquot.toml"
    settings.write_text("[queues]\nhalf_life = -1\n")
    done = aliquot("up", "--config", str(settings), "--simulate", "1xT4", folder=folder)
    assert done.returncode == 4
    wrong = "-1 will not do: expected a number > 0.0; write what is expected, or drop it: the default is 86400"
    assert done.stderr == f"aliquot: {settings} [queues] half_life: {wrong}\n"
    assert not folder.exists()


def test_nobody_else_on_the_machine_is_let_in(folder: Path) -> None:
    """Whoever can create pods runs programs as its user, so the API asks for a token that only the user can read."""
    with running_up(folder) as up:
        assert HttpApi(url=up.api.url).get(PODS).code == HTTPStatus.UNAUTHORIZED
        assert up.home.kubeconfig.stat().st_mode & 0o077 == 0
        assert up.stop() == 0


def test_a_job_runs_to_its_end(folder: Path) -> None:
    """Its pods are made, get their slices one after another, and are counted."""
    limits = {NAMES.compute: "60", NAMES.memory: "8000"}
    container = {"name": "main", "image": "none", "command": ["true"], "resources": {"limits": limits}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    spec = {"completions": 3, "parallelism": 2, "template": template}
    with running_up(folder, gpus="1xT4") as up:
        up.api.post(JOBS, {"metadata": {"name": "three"}, "spec": spec}).ok()
        with up.api.watch(JOBS) as watch:
            while (status := watch.next()["object"].get("status", {})).get("succeeded") != 3:
                assert status.get("failed", 0) == 0
        assert up.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_everything(folder: Path, number: signal.Signals) -> None:
    """Ctrl-C leaves no process, no socket and no word that somebody serves; what was created stays in the folder."""
    with running_up(folder) as up:
        up.run("stays", "sleep", "1000")
        up.until("stays", "Running")
        sockets = up.home.runtime
        assert sockets.is_dir()
        assert up.stop(number) == 0
    assert naming(folder) == []
    assert not sockets.exists()
    assert up.home.running() is None
    assert up.home.journal.exists()


def test_it_goes_on_where_it_was(folder: Path) -> None:
    """Objects are all there, a pod that was ended with it says how, and one that is to run always runs again."""
    with running_up(folder) as up:
        up.run("batch", "sleep", "1000")
        up.run("service", "sleep", "1000", restartPolicy="Always")
        first = [up.until(name, "Running")["metadata"]["uid"] for name in ("batch", "service")]
        assert up.stop() == 0
    with running_up(folder) as up:
        ended = up.until("batch", "Failed", "Succeeded")
        assert ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 128 + signal.SIGTERM
        again = up.until("service", "Running")
        eventually(lambda: up.pod("service")["status"]["containerStatuses"][0]["restartCount"] == 1)
        assert [ended["metadata"]["uid"], again["metadata"]["uid"]] == first
        assert up.stop() == 0


def test_a_second_one_on_the_same_folder_is_told_so(folder: Path) -> None:
    """With its own exit code, and the first one is not disturbed."""
    with running_up(folder) as up:
        second = aliquot("up", "--port", "0", "--page-port", "0", folder=folder)
        assert second.returncode == 5
        assert f"another process (pid {up.process.pid}) uses this state" in second.stderr
        assert up.home.running()
        up.run("one", "true")
        up.until("one", "Succeeded")
        assert up.stop() == 0


@pytest.mark.parametrize("flag", ["--port", "--page-port"])
def test_a_port_that_is_taken_is_named(folder: Path, flag: str) -> None:
    """With what to do about it, and nothing is left."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = aliquot("up", flag, str(port), folder=folder)
    assert done.returncode == 4
    assert re.search(rf"127\.0\.0\.1:{port}: can't listen: .*name another one with {flag}", done.stderr)
    assert naming(folder) == []


def test_what_there_was_is_summed_up_for_scripts(folder: Path) -> None:
    """`--exit-after` ends it by itself; the summary is all that is printed."""
    flags = ("--simulate", MIXED, "--port", "0", "--page-port", "0")
    done = aliquot("up", *flags, "--exit-after", "0", "--summary", "json", folder=folder)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["nodes"], summary["gpus"]) == (3, 16)
    assert summary["compute"] == {"granted": 0, "of": 1600}
    assert naming(folder) == []


def test_what_is_simulated_is_kept_apart_from_what_is_run(folder: Path) -> None:
    """A pod with a command goes where commands are run; one that says how it is to be played may be played."""
    with running_up(folder, gpus=MIXED) as up:
        up.run("real", "true")
        assert up.until("real", "Succeeded")["spec"]["nodeName"] == "a100-80gb-1"
        up.run("astray", "true", nodeSelector={"sim.aliquot.dev/simulated": "true"})
        with up.api.watch(PODS, fieldSelector="metadata.name=astray") as watch:
            while "tainted (sim.aliquot.dev/simulated)" not in str(watch.next()["object"]["status"]):
                pass
        limits = {NAMES.compute: "100"}
        spec = {
            "containers": [{"name": "main", "image": "none", "resources": {"limits": limits}}],
            "nodeSelector": {"sim.aliquot.dev/simulated": "true"},
            "restartPolicy": "Never",
        }
        metadata: dict[str, Any] = {"name": "played", "annotations": {"sim.aliquot.dev/duration": "0.1"}}
        up.api.post(PODS, {"metadata": metadata, "spec": spec}).ok()
        assert up.until("played", "Succeeded", "Failed")["spec"]["nodeName"].startswith("l40s-")
        # It would hold its slice there and never start.
        bare = {"name": "bare", "annotations": {**metadata["annotations"], NAMES.gpu_model: "*A100*"}}
        up.api.post(PODS, {"metadata": bare, "spec": {**spec, "nodeSelector": {}}}).ok()
        with up.api.watch(PODS, fieldSelector="metadata.name=bare") as watch:
            while "tainted (sim.aliquot.dev/real)" not in str(watch.next()["object"]["status"]):
                pass
        assert up.stop() == 0


def test_other_gpus_the_next_time(folder: Path) -> None:
    """Nodes that are not there any more are gone, and their pods are reported lost; without a word it is as before."""
    with running_up(folder) as up:
        up.run("lost", "sleep", "1000")
        up.until("lost", "Running")
        assert up.stop() == 0
    with running_up(folder, gpus="2xT4") as up:
        pod = up.until("lost", "Failed")
        assert (pod["status"]["reason"], pod["spec"]["nodeName"]) == ("NodeLost", "a100-80gb-1")
        assert [node["metadata"]["name"] for node in up.api.get("/api/v1/nodes").ok()["items"]] == ["t4-1"]
        assert up.stop() == 0
    assert up.home.remembered() == "2xT4"


@pytest.mark.parametrize("victim", ["agent", "endpoint", "scheduler"])
def test_a_process_that_dies_is_started_again(folder: Path, victim: str) -> None:
    """Whichever it is, pods that run go on and new ones are placed."""
    with running_up(folder) as up:
        up.run("before", "sleep", "1000")
        before = up.until("before", "Running")
        (pid,) = up.children(victim)
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: up.children(victim) not in ([], [pid]))
        eventually(lambda: _created(up.api, "after"))
        up.until("after", "Succeeded")
        assert up.pod("before")["status"]["containerStatuses"] == before["status"]["containerStatuses"]
        assert up.stop() == 0


def test_a_journal_that_was_cut_in_a_record_loses_no_other(folder: Path) -> None:
    """Whatever stands before the cut is there, slices are given out by what is there, and it is said once."""
    with running_up(folder) as up:
        assert "journal" not in up.said
        up.run("one", "true")
        up.until("one", "Succeeded")
        assert up.stop() == 0
    with up.home.journal.open("ab") as journal:
        journal.write(b'0badc0de {"v":99999999,"t":"pods","k":"default/half')
    with running_up(folder) as up:
        assert up.pod("one")["status"]["phase"] == "Succeeded"
        up.run("two", "true")
        up.until("two", "Succeeded")
        assert up.stop() == 0
    assert "the journal ended in the middle of a record" in up.said
    assert "the journal ends in the middle of a record" in (up.home.logs / "up.log").read_text()


def test_down_ends_what_runs_and_purge_forgets_it(folder: Path) -> None:
    """From any terminal; what is not ours in the folder stays."""
    with running_up(folder) as up:
        up.run("stays", "sleep", "1000")
        up.until("stays", "Running")
        done = aliquot("down", folder=folder)
        assert (done.returncode, up.process.wait()) == (0, 0)
        assert f"pid {up.process.pid}" in done.stdout
    assert naming(folder) == []
    (folder / "mine.txt").write_text("not yours")
    assert "left alone, for it is not ours" in aliquot("down", "--purge", folder=folder).stdout
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]


def test_a_home_that_can_not_be_written_is_named(tmp_path: Path) -> None:
    """With what to do about it; commands that only look there find nobody, and there is nothing to remove."""
    home = tmp_path / "home"
    home.write_text("a file, which not even root writes below")
    folder = home / ".local" / "state" / "aliquot"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ALIQUOT_", "KUBE", "XDG_"))}

    def called(*words: str) -> tuple[int, str]:
        done = subprocess.run(
            [*ALIQUOT, *words],
            env={**kept, "HOME": str(home)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=100,
            check=False,
        )
        return done.returncode, done.stdout

    remedy = "name another folder with --folder or $ALIQUOT_HOME"
    assert called("up", "--simulate", ONE) == (3, f"aliquot: {folder}: can't be made: Not a directory; {remedy}\n")
    code, told = called("ps")
    assert (code, f"no `aliquot up` runs from {folder}" in told) == (4, True)
    nothing = f"no `aliquot up` runs from {folder}\nthere is no {folder}: nothing to remove\n"
    assert called("down", "--purge") == (0, nothing)


@pytest.mark.timeout(180)
def test_the_demonstration_tells_what_it_has_seen(folder: Path) -> None:
    """Slices of one GPU, borrowing, a gang that waits as a whole, a GPU that fails and is mended; twice in a row."""
    for _ in range(2):
        done = aliquot(
            "up", "--demo", "--port", "0", "--page-port", "0", "--exit-after", "0", folder=folder, seconds=90
        )
        assert done.returncode == 0, done.stderr
        assert re.search(r"notebook-anna +runs after +\d+ ms and says: 30 % and 4000 MiB of GPU-", done.stdout)
        assert "3 programs, 1 GPU\n" in done.stdout
        assert re.search(r"24 run after .* s, 12 more than its guarantee; [1-4] wait", done.stdout)
        assert re.search(r"8 wait: all GPUs of the teams are taken", done.stdout)
        assert re.search(r"8 run after .* s, the last \d\.\d s after the first", done.stdout)
        assert re.search(r"it is sick \(XID 79.*\n +burst-\d+ is Failed", done.stdout)
        assert "by an operator, it is healthy again" in done.stdout
    assert naming(folder) == []


def test_what_is_typed_during_the_demonstration_runs_at_once(folder: Path) -> None:
    """While both teams ask for more than there is, the printed command waits for none of them."""
    with running_up(folder, "--demo", gpus=SIMULATED) as up:
        eventually(lambda: _waiting(up.api, "speech") > 0)
        done = aliquot("run", "--compute", "30", "--memory", "8000", "--", "echo", "here", folder=folder)
        assert (done.returncode, done.stdout, done.stderr) == (0, "here\n", "")
        assert _waiting(up.api, "speech") > 0
        assert up.stop() == 0


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (("--simulate", "8xA100-80GB"), "needs 4 GPUs on simulated nodes, and here are 0"),
        (("--simulate", "nvml"), "and here are 0"),
    ],
)
def test_a_demonstration_without_a_stage_is_refused(folder: Path, flags: tuple[str, ...], reason: str) -> None:
    """At once, with what to write instead."""
    done = aliquot("up", "--demo", *flags, folder=folder)
    assert done.returncode == 3
    assert reason in done.stderr
    assert not folder.exists()


@pytest.mark.parametrize(("spec", "reason"), [("8xH1000", "no model"), ("two", "known"), ("99xL40S", "write 1 to 16")])
def test_gpus_that_can_not_be_simulated_are_refused(folder: Path, spec: str, reason: str) -> None:
    """One line says what is wrong and what to write."""
    done = aliquot("up", "--simulate", spec, folder=folder)
    assert done.returncode == 3
    assert done.stderr.startswith("aliquot: --simulate: ")
    assert reason in done.stderr
    assert not folder.exists()


def _waiting(api: HttpApi, namespace: str) -> int:
    """How many pods of a namespace have no node."""
    answer = api.get(f"/api/v1/namespaces/{namespace}/pods", fieldSelector="spec.nodeName=,status.phase=Pending")
    return len(answer.ok()["items"])


def _created(api: HttpApi, name: str) -> bool:
    """Whether a pod could be created: not while the centre, which is asked about each, is away."""
    limits = {NAMES.compute: "10", NAMES.memory: "1000"}
    container = {"name": "main", "image": "none", "command": ["true"], "resources": {"limits": limits}}
    body = {"metadata": {"name": name}, "spec": {"containers": [container], "restartPolicy": "Never"}}
    return api.post(PODS, body).code == HTTPStatus.CREATED
