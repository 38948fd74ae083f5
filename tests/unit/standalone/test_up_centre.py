"""How `aliquot up` starts its centre: by settings that the centre itself takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from aliquot_cli.sections import SECTIONS
from aliquot_core.settings import Sources
from aliquot_kube.election import ElectionSettings
from aliquot_scheduler.page.settings import PageSettings
from aliquot_standalone.centre_child import CentrePlace, centre_command
from aliquot_standalone.certificates import make_files

USAGE = ["http://127.0.0.1:1/metrics", "http://127.0.0.1:2/metrics"]


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sources:
    """What the centre is told, where its parent was told other things."""
    monkeypatch.setenv("ALIQUOT_ELECTION_DURATION", "10")
    monkeypatch.setenv("ALIQUOT_HOME", str(tmp_path))
    files = make_files(tmp_path, host="127.0.0.1", now=0.0)
    place = CentrePlace(port=1, status_port=2)
    command = centre_command(place, files=files, kubeconfig=tmp_path / "kubeconfig", usage=USAGE)
    return Sources(environment=command.environment)


def test_the_centre_knows_all_that_it_is_told(given: Sources) -> None:
    """A misspelt name would be refused by it, and `aliquot up` with it."""
    given.check_names(SECTIONS)
    for section, kind in SECTIONS.items():
        assert given.resolve(section, kind).value is not None


def test_a_busy_machine_is_no_reason_to_lead_no_longer(given: Sources) -> None:
    """Nobody else could: a hundred runs at once kept two cores busy for longer than a lease of 10 s."""
    election = given.resolve("election", ElectionSettings).value
    assert election.duration - election.margin >= 50.0
    assert election.request >= 10.0


def test_the_page_is_told_what_is_used_and_where_its_history_is(given: Sources, tmp_path: Path) -> None:
    """In the one folder of state, so that `aliquot down --purge` forgets it."""
    page = given.resolve("page", PageSettings).value
    assert page.usage == tuple(USAGE)
    assert Path(page.history).parent == tmp_path
