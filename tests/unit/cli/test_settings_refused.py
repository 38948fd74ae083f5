"""A value that can't work is refused before anything starts, by `aliquot config` and by the process alike."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from aliquot_cli.main import main

LONG = "/" + "d" * 107

# Variable, value, what the refusal says.
REFUSED: list[tuple[str, str, str]] = [
    ("AGENT_GPUS", "banana", "no model 'banana' is known; write \"nvml\", or GPUs to simulate"),
    ("AGENT_GPUS", "", '; write "nvml", or GPUs to simulate'),
    ("AGENT_GPUS", "2x8xA100-80GB", "these are 2 nodes, an agent has one"),
    ("AGENT_HEARTBEAT", "inf", "<= 86400.0"),
    ("AGENT_HEARTBEAT", "nan", ">= 0.001"),
    ("AGENT_HEARTBEAT", "0", ">= 0.001"),
    ("AGENT_SAMPLE", "-1", ">= 0.001"),
    ("AGENT_COLLECT", "1e300", "<= 86400.0"),
    ("AGENT_DOOR", "", "it is no path"),
    ("AGENT_DOOR", LONG, "108 bytes are too many for a socket's path"),
    ("AGENT_POD_RESOURCES", "", "it is no path"),
    ("AGENT_CDI_FOLDER", "", "it is no path"),
    # CDI takes whole paths only: each start would fail.
    (
        "AGENT_ISOLATION_FOLDER",
        "isolation",
        "containers mount from there, by its path on the node; write the whole path",
    ),
    ("AGENT_MPS_FOLDER", "./mps", "containers mount from there"),
    ("AGENT_ISOLATION_FOLDER", "", "it is no path"),
    ("MPS_FOLDER", "mps", "containers mount from there"),
    ("AGENT_OVER_USE_WARN", "nan", ">= 0.001"),
    ("AGENT_OVER_USE_EVICT", "inf", "<= 86400.0"),
    ("AGENT_NODE_NAME", "", "no node is called that"),
    ("AGENT_NODE_NAME", "Node 1", "no node is called that"),
    ("AGENT_NODE_NAME", "n1\n", "no node is called that"),
    ("AGENT_DRIVER_FILES", "real", "write 'driver' or 'simulated'"),
    # An empty address would be every address of the node.
    ("AGENT_HTTP_ADDRESS", "", "length >= 1"),
    ("AGENT_HTTP_PORT", "65536", "<= 65535"),
    ("HEALTH_XIDS", "79=ill", "'79=ill' is no line of the table; write lines such as 79=sick"),
    ("HEALTH_DEGRADED_FOR", "inf", "<="),
    ("LOG_LEVEL", "loud", "write debug, info, warning or error"),
    (
        "AGENT_HTTP_PORT",
        "many",
        "expected a whole number, got text; write what is expected, or drop it: the default is 10940",
    ),
    ("LOG_FORMAT", "xml", "write 'auto' or 'json' or 'human'"),
    ("NAMES_DOMAIN", "aliquot", "is no DNS name"),
    ("NAMES_NAMESPACE", "A", "can't be the name of a namespace"),
    ("ENDPOINT_DOOR", "", "it is no path"),
    ("ENDPOINT_DOOR", LONG, "108 bytes are too many"),
    ("ENDPOINT_STATE_FILE", "", "it is no path"),
    # Directly in the plugin folder the kubelet would delete our sockets.
    ("ENDPOINT_SOCKET_FOLDER", "", "it is no folder below"),
    ("ENDPOINT_SOCKET_FOLDER", ".", "it is no folder below"),
    # The kubelet connects to what it finds below its own folder, nowhere else.
    ("ENDPOINT_SOCKET_FOLDER", "/run/aliquot", "it is no folder below"),
    ("ENDPOINT_SOCKET_FOLDER", "../aliquot", "it is no folder below"),
    ("ENDPOINT_REGISTRATION", "http", "write 'socket' or 'registry'"),
    ("ENDPOINT_PRESTART_PATIENCE", "inf", "<= 86400.0"),
    ("ENDPOINT_TAKEOVER_PATIENCE", "inf", "<= 86400.0"),
    ("ENDPOINT_POLL", "0", ">= 0.001"),
]


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that is taken would start a process."""
    for command in ("agent", "endpoint", "mps"):
        monkeypatch.setattr(f"aliquot_cli.{command}.run_until_stopped", lambda _: None)
    monkeypatch.setattr("aliquot_cli.running.configure_logging", lambda _: None)


@pytest.mark.parametrize(("variable", "value", "words"), REFUSED)
def test_what_can_t_work_is_refused_by_all_in_the_same_words(variable: str, value: str, words: str) -> None:
    """With the place, what is wrong, and a remedy that leads out: not back to the command that refuses."""
    environment = {f"ALIQUOT_{variable}": value}
    process = {"ENDPOINT": "endpoint", "MPS": "mps"}.get(variable.partition("_")[0], "agent")
    done = [CliRunner().invoke(main, [command], env=environment) for command in ("config", process)]
    for result in done:
        assert result.exit_code == 4, result.output
        assert result.stderr == done[0].stderr
    told = done[0].stderr
    assert told.startswith(f"aliquot: environment ALIQUOT_{variable}: ")
    assert words in told
    assert "; " in told
    assert "or drop it: the default is " in told
    assert "aliquot config" not in told


@pytest.mark.parametrize(
    ("times", "taken"),
    [
        ({"WARN": "30", "THROTTLE": "30", "EVICT": "30"}, True),
        ({"EVICT": "60"}, True),
        ({"EVICT": "59"}, False),
        ({"WARN": "61"}, False),
        ({"THROTTLE": "1"}, False),
        ({"THROTTLE": "121"}, False),
    ],
)
def test_a_ladder_whose_rungs_do_not_rise_is_refused(times: dict[str, str], taken: bool) -> None:
    """By all in the same words, with all three times: which of them is wrong, only its author knows."""
    environment = {f"ALIQUOT_AGENT_OVER_USE_{name}": text for name, text in times.items()}
    done = [CliRunner().invoke(main, [command], env=environment) for command in ("config", "agent")]
    given = {"WARN": "30", "THROTTLE": "60", "EVICT": "120"} | times
    told = (
        "aliquot: settings of [agent]: over_use_warn, over_use_throttle and over_use_evict do not rise: "
        f"{given['WARN']}, {given['THROTTLE']} and {given['EVICT']} s; give each no less than the one before it\n"
    )
    assert [(one.exit_code, one.stderr) for one in done] == [(0, "") if taken else (4, told)] * 2


@pytest.mark.parametrize("command", ["config", "agent", "endpoint"])
def test_the_defaults_are_taken(command: str) -> None:
    """Also on a machine whose name has capitals."""
    assert CliRunner().invoke(main, [command]).exit_code == 0


@pytest.mark.parametrize("value", ["nvml", "8xA100-80GB", "L4"])
def test_gpus_that_there_may_be_are_taken(value: str) -> None:
    """The driver's, or simulated ones."""
    assert CliRunner().invoke(main, ["agent", "--gpus", value]).exit_code == 0
