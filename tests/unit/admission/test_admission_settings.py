"""Which schedulers an operator may say ask Aliquot: neither its own, nor the one whose pods are given to that."""

from __future__ import annotations

import pytest

from aliquot_core.settings import SettingsError, Sources
from aliquot_scheduler.admission.settings import AdmissionSettings


def read(*others: str, **more: str) -> AdmissionSettings:
    """What a settings file says."""
    file = {"admission": {"other_schedulers": list(others), **more}}
    return Sources(file=file, file_name="a.toml").resolve("admission", AdmissionSettings).value


@pytest.mark.parametrize("name", ["theirs", "gpu.team-a", "a", "0-1"])
def test_a_profile_with_the_extender_s_snippet_may_be_named(name: str) -> None:
    """By whatever name kube-scheduler has it."""
    assert read("x", name).other_schedulers == ("x", name)


@pytest.mark.parametrize(
    ("others", "words"),
    [
        (["x", "default-scheduler"], "names default-scheduler, whose pods are given to aliquot"),
        (["aliquot"], "names aliquot, which is scheduler_name already"),
        ([""], "other_schedulers: [''] will not do"),
        (["Theirs"], "other_schedulers: ['Theirs'] will not do"),
        (["a b"], "other_schedulers: ['a b'] will not do"),
        (["a,b"], "other_schedulers: ['a,b'] will not do"),
        (["-a"], "other_schedulers: ['-a'] will not do"),
        (["a" * 254], "other_schedulers: ['aaa"),
    ],
)
def test_a_name_that_would_do_nothing_is_refused(others: list[str], words: str) -> None:
    """At start: nobody would be told why pods of the scheduler that was meant are refused."""
    with pytest.raises(SettingsError) as raised:
        read(*others)
    assert words in str(raised.value)


def test_its_own_name_is_what_is_set() -> None:
    """Under another one `aliquot` may be somebody else's."""
    assert read("aliquot", scheduler_name="ours", profile="ours").other_schedulers == ("aliquot",)
    with pytest.raises(SettingsError, match="names ours, which is scheduler_name already"):
        read("ours", scheduler_name="ours", profile="ours")
