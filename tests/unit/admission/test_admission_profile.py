"""Whoever starts the centre is told at once where pods are given to a profile that nobody has."""

from __future__ import annotations

import logging

import pytest

from aliquot_scheduler.admission.profile import at_odds, tell_profile, who_asks
from aliquot_scheduler.admission.settings import AdmissionSettings

SAID: dict[str, tuple[str, str, int, str]] = {
    "as installed": ("aliquot", "aliquot", logging.INFO, ""),
    "both renamed": ("gpus", "gpus", logging.INFO, ""),
    "the cluster's own has it, who knows under which name": ("aliquot", "", logging.INFO, "must have this profile"),
    "another name": ("gpus", "aliquot", logging.WARNING, "called aliquot: unless another kube-scheduler"),
}


@pytest.mark.parametrize("row", SAID)
def test_a_start_says_who_is_to_ask_for_pods(row: str, caplog: pytest.LogCaptureFixture) -> None:
    """And what happens if they don't: both names are in the sentence."""
    given, installed, level, said = SAID[row]
    settings = AdmissionSettings(scheduler_name=given, profile=installed)
    with caplog.at_level(logging.INFO):
        tell_profile(settings)
    (line,) = caplog.records
    assert line.levelno == level
    told = str(line.__dict__.get("reason") or line.__dict__["note"])
    assert said in told
    assert bool(at_odds(settings)) is (level == logging.WARNING)
    if level == logging.WARNING:
        assert f"given to scheduler {given}" in told
        assert "TurnLost" in told


@pytest.mark.parametrize(
    ("named", "asks"), [("", "gpus"), ("gpus", "gpus"), ("volcano", "gpus"), ("other", "other"), ("more", "more")]
)
def test_a_pod_is_asked_for_by_whom_it_names_if_that_is_known_to_ask(named: str, asks: str) -> None:
    """The webhook judges by it, and `explain` tells."""
    assert who_asks(named, AdmissionSettings(scheduler_name="gpus", other_schedulers=("other", "more"))) == asks


def test_the_defaults_agree() -> None:
    """What is shipped and what is set."""
    assert at_odds(AdmissionSettings()) == ""
