"""Where a setting comes from, and what happens to one that can't be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from aliquot_core.names import Names
from aliquot_core.settings import FlagError, SettingsError, Sources, read_toml


class Some(msgspec.Struct, frozen=True, kw_only=True):
    """One setting of each type."""

    count: int = 1
    ratio: float = 0.5
    name: str = "d"
    quick: bool = False
    parts: tuple[str, ...] = ()
    maybe: str | None = None


def sources(
    *, flags: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None, toml: str = ""
) -> Sources:
    """All three at once."""
    return Sources(
        flags={"some": flags or {}},
        environment=environment or {},
        file=read_toml(toml, name="a.toml"),
        file_name="a.toml",
    )


FILE, VARIABLE, FLAG = "[some]\ncount = 2\n", {"ALIQUOT_SOME_COUNT": "3"}, {"count": 4}


@pytest.mark.parametrize(
    ("given", "count", "source"),
    [
        (sources(), 1, "default"),
        (sources(toml=FILE), 2, "a.toml [some] count"),
        (sources(environment=VARIABLE), 3, "environment ALIQUOT_SOME_COUNT"),
        (sources(toml=FILE, environment=VARIABLE), 3, "environment ALIQUOT_SOME_COUNT"),
        (sources(flags=FLAG), 4, "flag --count"),
        (sources(toml=FILE, flags=FLAG), 4, "flag --count"),
        (sources(environment=VARIABLE, flags=FLAG), 4, "flag --count"),
        (sources(toml=FILE, environment=VARIABLE, flags=FLAG), 4, "flag --count"),
        (sources(toml=FILE, environment=VARIABLE, flags={"count": None}), 3, "environment ALIQUOT_SOME_COUNT"),
    ],
)
def test_flags_beat_environment_beats_file_beats_default(given: Sources, count: int, source: str) -> None:
    """And each value knows where it came from."""
    resolved = given.resolve("some", Some)
    assert (resolved.section, resolved.value.count, resolved.sources["count"]) == ("some", count, source)
    assert resolved.sources["name"] == "default"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("count", "7", 7),
        ("ratio", "0.25", 0.25),
        ("name", "7", "7"),
        ("quick", "true", True),
        ("quick", "0", False),
        ("parts", "a, b,,c ", ("a", "b", "c")),
        ("parts", "", ()),
        ("maybe", "x", "x"),
    ],
)
def test_variables_are_text_and_read_by_the_setting_s_type(name: str, text: str, value: object) -> None:
    """Numbers, yes and no, and lists with commas."""
    resolved = sources(environment={f"ALIQUOT_SOME_{name.upper()}": text}).resolve("some", Some)
    assert getattr(resolved.value, name) == value


BAD = {
    "a variable of another type": (
        sources(environment={"ALIQUOT_SOME_COUNT": "many"}),
        "environment ALIQUOT_SOME_COUNT",
        "'many' will not do",
    ),
    "an entry of another type": (sources(toml="[some]\ncount = 'many'\n"), "a.toml [some] count", "'many' will not do"),
    "a flag of another type": (sources(flags={"count": "many"}), "--count", "'many' will not do"),
    "an unknown entry": (
        sources(toml="[some]\ncuont = 1\n"),
        "a.toml [some]",
        "unknown entry 'cuont'; did you mean count?",
    ),
    "no table": (sources(toml="some = 1\n"), "a.toml [some]", "is not a table"),
}


@pytest.mark.parametrize("row", BAD)
def test_a_setting_that_cannot_be_used_names_its_place(row: str) -> None:
    """At start, where somebody looks."""
    given, where, wrong = BAD[row]
    with pytest.raises(FlagError if where.startswith("--") else SettingsError) as caught:
        given.resolve("some", Some)
    assert str(caught.value).startswith(f"{where}: ")
    assert wrong in str(caught.value)
    assert caught.value.remedy


def test_file_that_is_not_toml_is_named() -> None:
    """With the line that stops it."""
    with pytest.raises(SettingsError, match=r"a\.toml: is not TOML: .*line 1"):
        read_toml("x = = 1", name="a.toml")


def test_names_that_no_component_has_are_refused() -> None:
    """A misspelt section or variable would be ignored in silence; other programs' variables are none of ours."""
    sections = {"some": Some}
    known = {"ALIQUOT_SOME_COUNT": "1", "ALIQUOT_REQUIRE": "native", "HOME": "h"}
    of_others = {"ALIQUOT_GPUS": "GPU-1", "ALIQUOT_SOME_SERVICE_HOST": "10.0.0.1", "ALIQUOT_SOME_PORT_80_TCP": "tcp://"}
    sources(toml=FILE, environment=known | of_others).check_names(sections)
    with pytest.raises(SettingsError, match=r"unknown section \[smoe\].*did you mean some"):
        sources(toml="[smoe]\n").check_names(sections)
    with pytest.raises(SettingsError, match=r"unknown variable ALIQUOT_SOME_CUONT.*did you mean ALIQUOT_SOME_COUNT"):
        sources(environment={"ALIQUOT_SOME_CUONT": "1"}).check_names(sections)


def test_names_are_settings() -> None:
    """The domain of a fork is one line of its file."""
    resolved = sources(toml="[names]\ndomain = 'gpu.example.org'\n").resolve("names", Names)
    assert resolved.value.compute == "gpu.example.org/compute"


@pytest.mark.parametrize("text", ["x = " + "[" * 100_000, "x = " + "9" * 5_000, "[some"])
def test_a_file_that_is_no_toml_is_called_that(text: str) -> None:
    """Also where the reader itself gives up: nested too deep, a number too long."""
    with pytest.raises(SettingsError, match=r"a\.toml: is not TOML"):
        read_toml(text, name="a.toml")


def test_a_flag_is_for_one_section() -> None:
    """Another one may have a setting of the same name."""
    assert sources(flags=FLAG).resolve("other", Some).value.count == Some().count
