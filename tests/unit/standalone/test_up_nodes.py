"""How `aliquot up` starts what a node on the full path has, and who keeps MPS daemons: by settings that these take."""

from __future__ import annotations

from pathlib import Path

import pytest

from aliquot_agent.isolation.mps_settings import MpsSettings
from aliquot_agent.settings import AgentSettings
from aliquot_cli.sections import SECTIONS
from aliquot_core.modes import MPS
from aliquot_core.settings import Sources
from aliquot_standalone.centre_child import inherited
from aliquot_standalone.mps_child import mps_command
from aliquot_standalone.nodes import NodePlan

_AT = Path("/run/up")


def told(variables: dict[str, str]) -> list[Sources]:
    """What endpoint and agent are told, where their parent was told this."""
    plan = NodePlan(name="n1", gpus="nvml", folder=_AT / "n1", runtime=_AT, kubeconfig=_AT / "config", mps=_AT / "mps")
    return [Sources(environment=command.environment) for command in plan.commands(variables)]


def test_they_know_all_that_they_are_told() -> None:
    """A misspelt name would be refused by them, and `aliquot up` with it."""
    for sources in told({}):
        sources.check_names(SECTIONS)


def test_how_slices_are_held_is_the_operators_to_say() -> None:
    """By variables as by the file; where files lie is not, for two `aliquot up` would meet there."""
    for sources in told(
        {
            "ALIQUOT_AGENT_ISOLATION_OF": "0=mps,1=observe",
            "ALIQUOT_AGENT_MPS_FOLDER": "/elsewhere",
            "ALIQUOT_AGENT_DOOR": "/elsewhere/door",
        }
    ):
        agent = sources.resolve("agent", AgentSettings).value
        assert agent.isolation_of == ("0=mps", "1=observe")
        assert agent.wants(MPS)
        assert agent.mps_folder == str(_AT / "mps")
        assert agent.door.startswith(str(_AT))
        # Nothing is mounted for a process.
        assert not agent.mounts


# Where real files lie that are mounted nowhere here, and times that pods see nothing of.
_SAYS_NOTHING_HERE = {
    "node_root",
    "driver_root",
    "driver_files",
    "interposer",
    "accounts_mib",
    "http_address",
    "heartbeat",
    "drain",
    "collect",
}


@pytest.mark.parametrize("field", AgentSettings.__struct_fields__)
def test_each_setting_of_agents_is_ours_or_the_operators(field: str) -> None:
    """What an operator says of pods' slices is not dropped without a word: it was of a context's size."""
    name = f"ALIQUOT_AGENT_{field.upper()}"
    ours = (
        name
        in NodePlan(name="n1", gpus="nvml", folder=_AT / "n1", runtime=_AT, kubeconfig=_AT / "config", mps=_AT / "mps")
        .commands({})[1]
        .environment
    )
    theirs = name in inherited({name: "said"})
    assert [ours, theirs, field in _SAYS_NOTHING_HERE].count(True) == 1


def test_the_keeper_of_mps_daemons_meets_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the folder of this `aliquot up`, with what else the operator says of MPS."""
    monkeypatch.setenv("ALIQUOT_MPS_PROGRAM", "/opt/mps-control")
    monkeypatch.setenv("ALIQUOT_MPS_FOLDER", "/elsewhere")
    command = mps_command(_AT / "mps")
    found = Sources(environment=command.environment).resolve("mps", MpsSettings).value
    assert (found.program, found.folder) == ("/opt/mps-control", str(_AT / "mps"))
