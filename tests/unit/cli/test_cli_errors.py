"""How a process says what ended it: a line for each of our errors, a traceback only for a defect."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from aliquot_cli.main import FAULTS, NOT_ADMITTED, main
from aliquot_cli.one_run import INTERRUPTED, KILLED, LOST, UNHEARD
from aliquot_cli.replica_settings import read_settings
from aliquot_core.errors import ClusterError
from aliquot_scheduler.centre.settings import CentreSettings
from aliquot_scheduler.web.settings import WebSettings

# Nobody listens there.
NOBODY = """
apiVersion: v1
kind: Config
current-context: nobody
contexts: [{name: nobody, context: {cluster: nobody, user: nobody}}]
clusters: [{name: nobody, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: nobody, user: {token: none}}]
"""
DOCUMENTED = Path(__file__).parents[3] / "docs" / "commands.md"
# What is typed, with a kubeconfig of nobody's, and the exit code that comes of it.
CODES = {
    "--help": 0,
    "run --help": 0,
    "nonsense": 2,
    "ps --nonsense": 2,
    "ps -o nonsense": 2,
    "up --port abc": 2,
    "up --exit-after nan": 2,
    "up --exit-after -1": 2,
    "run --compute 0 -- true": 2,
    "explain ''": 2,
    "explain /pod": 2,
    "explain -n one other/pod": 2,
    "explain -n default/pods/a? b": 2,
    "logs 'a b'": 2,
    "stop a ''": 2,
    "queue ..": 2,
    "ps -n A": 2,
    "up --port 99999": 3,
    "up --page-port -1": 3,
    "up --full 9": 3,
    "up --simulate 8xH1000": 3,
    "up --simulate 99xL40S": 3,
    "agent --gpus 8xH1000": 3,
    "ps": 4,
    "config --config /nowhere": 4,
    "up --config /nowhere": 4,
}
# What click itself would print, and how.
TOLD_BY_CLICK = ["--help", "-h", "--version", "up --help"]

TAKEN = ClusterError("can't listen", where="0.0.0.0:10943", remedy="who else does?")


def ending_with(error: Exception, *, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the centre end so, instead of starting."""

    def fail(_: object) -> None:
        raise error

    monkeypatch.setattr("aliquot_cli.scheduler.run_until_stopped", fail)
    monkeypatch.setattr("aliquot_cli.running.configure_logging", lambda _: None)


def test_an_error_among_several_tasks_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """However deep it lies: an operator who reads a traceback thinks of a defect."""
    ending_with(ExceptionGroup("outer", [ExceptionGroup("inner", [TAKEN])]), monkeypatch=monkeypatch)
    result = CliRunner().invoke(main, ["scheduler"])
    assert (result.exit_code, result.stderr) == (4, "aliquot: 0.0.0.0:10943: can't listen; who else does?\n")


def test_a_defect_among_them_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or nobody could mend it."""
    ending_with(ExceptionGroup("both", [TAKEN, ZeroDivisionError()]), monkeypatch=monkeypatch)
    assert isinstance(CliRunner().invoke(main, ["scheduler"]).exception, ExceptionGroup)


def test_ctrl_c_ends_a_command_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the code that shells expect."""

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("aliquot_cli.scheduler.run_until_stopped", interrupted)
    monkeypatch.setattr("aliquot_cli.running.configure_logging", lambda _: None)
    result = CliRunner().invoke(main, ["scheduler"])
    assert (result.exit_code, result.output) == (INTERRUPTED, "")


# As the installed script does, with Ctrl-C pressed the moment somebody imports what is named.
PRESSED = """
import os, signal, sys

module = sys.argv.pop(1)

class Pressing:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)

# A shell has what it starts in the background ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Pressing())
from aliquot_cli.main import main
main()
"""


@pytest.mark.parametrize("module", ["click", "aliquot_core.errors", "aliquot_cli.run", "aliquot_cli.submitting"])
def test_ctrl_c_while_modules_are_imported_is_no_defect(module: str, tmp_path: Path) -> None:
    """Whoever sees at once that the line is wrong wants no traceback."""
    argv = [sys.executable, "-c", PRESSED, module, "run", "--", "true"]
    environment = {**os.environ, "KUBECONFIG": "", "ALIQUOT_HOME": str(tmp_path)}
    done = subprocess.run(argv, capture_output=True, env=environment, timeout=150, check=False)
    assert (done.returncode, done.stderr) == (INTERRUPTED, b"")


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["held-back", "unbuffered"])
@pytest.mark.parametrize("typed", ["config", "config -o json", "completion bash", *TOLD_BY_CLICK])
def test_a_full_disk_is_one_line(typed: str, unbuffered: str) -> None:
    """Not a traceback, neither at once nor when the interpreter writes at its end what was held back."""
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    argv = [sys.executable, "-m", "aliquot_cli.main", *shlex.split(typed)]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, env=environment, timeout=150, check=False)
    told = b"the result can't be written: No space left on device; send it to another place"
    assert (done.returncode, done.stderr) == (3, b"aliquot: standard output: " + told + b"\n")


def test_the_address_for_others_is_not_the_one_to_listen_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both settings are called `address`, and the flag is the first one's."""
    monkeypatch.setattr("aliquot_cli.replica_settings.start_logging", lambda _: None)
    settings = read_settings(file=None, flags={"address": "https://10.0.0.5:10943"})
    assert settings.centre == CentreSettings(address="https://10.0.0.5:10943")
    assert settings.web == WebSettings()


@pytest.mark.usefixtures("own_logging")
@pytest.mark.parametrize("typed", CODES)
def test_the_exit_code_says_whose_fault_it_is(typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts go by it: what can't be read, what can't be met, and what somebody else must mend."""
    nobody = tmp_path / "kubeconfig"
    nobody.write_text(NOBODY)
    monkeypatch.setenv("KUBECONFIG", str(nobody))
    monkeypatch.setenv("ALIQUOT_HOME", str(tmp_path / "home"))
    # `up --config` hands it on to its children by the environment: what is set here is undone after the test.
    monkeypatch.setenv("ALIQUOT_CONFIG", "")
    result = CliRunner().invoke(main, shlex.split(typed))
    assert result.exit_code == CODES[typed], result.output
    assert "Traceback" not in result.output
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("wrong", ["8xH1000", "99xL40S", "many"])
def test_gpus_that_can_not_be_simulated_are_told_by_the_option_s_name(wrong: str, tmp_path: Path) -> None:
    """As the documents call it, not as the setting is called."""
    result = CliRunner().invoke(main, ["up", "--simulate", wrong, "--folder", str(tmp_path / "home")])
    assert result.exit_code == 3
    assert result.output.startswith(f"aliquot: --simulate: '{wrong}' will not do: ")
    assert result.output.endswith(", or drop it\n")


def test_each_exit_code_is_documented() -> None:
    """One table has them all."""
    table = DOCUMENTED.read_text().partition("## Exit codes")[2].partition("\n## ")[0]
    documented = {int(code) for row in re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE) for code in row.split(",")}
    ours = {*FAULTS.values(), NOT_ADMITTED, *CODES.values(), INTERRUPTED, KILLED, UNHEARD, LOST, 1}
    assert documented == ours
