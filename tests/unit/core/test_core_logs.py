"""One way to log, in two forms."""

from __future__ import annotations

import io
import json
import logging
import re
from typing import Any, Literal

import pytest

from aliquot_core.logs import LogSettings, configure_logging
from aliquot_core.settings import SettingsError, Sources

pytestmark = pytest.mark.usefixtures("own_logging")


class Terminal(io.StringIO):
    """A stream that a person looks at."""

    def isatty(self) -> bool:
        """Yes."""
        return True


def logged(stream: io.StringIO, **settings: Any) -> str:
    """What comes out of one sentence with facts, and one that is below the level."""
    configure_logging(LogSettings(**settings), stream=stream)
    logger = logging.getLogger("aliquot.test")
    logger.info("slice given to %s", "a", extra={"gpu": "GPU-1", "percent": 30, "odd": {1}})
    logger.debug("not said")
    return stream.getvalue()


def test_machines_read_one_json_object_a_line() -> None:
    """With the facts beside the sentence, whatever type they are."""
    (line,) = logged(io.StringIO()).splitlines()
    read = json.loads(line)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", read.pop("time"))
    odd = read.pop("odd")
    assert odd in ([1], "{1}")
    assert read == {
        "level": "info",
        "logger": "aliquot.test",
        "message": "slice given to a",
        "gpu": "GPU-1",
        "percent": 30,
    }


@pytest.mark.parametrize(("stream", "form"), [(Terminal(), "auto"), (io.StringIO(), "human")])
def test_people_read_a_plain_line(stream: io.StringIO, form: str) -> None:
    """On a terminal, or where it is asked for."""
    (line,) = logged(stream, format=form).splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3} info +slice given to a  \[gpu=GPU-1 percent=30 odd=\{1\}\]", line)


@pytest.mark.parametrize(("form", "lines"), [("json", 1), ("human", 4)])
def test_an_exception_is_shown_with_its_traceback(form: Literal["json", "human"], lines: int) -> None:
    """In JSON inside the one line."""
    stream = io.StringIO()
    configure_logging(LogSettings(format=form), stream=stream)
    try:
        int("broken")
    except ValueError:
        logging.getLogger("aliquot.test").exception("it failed")
    text = stream.getvalue()
    assert "ValueError: invalid literal" in text
    assert "Traceback" in text
    assert len(text.splitlines()) >= lines
    assert form == "human" or len(text.splitlines()) == 1


def test_what_is_below_the_level_is_not_said() -> None:
    """And what is above is, in either case of letters."""
    assert logged(io.StringIO(), level="warning") == ""
    assert len(logged(io.StringIO(), level="DEBUG").splitlines()) == 2


def test_nothing_is_said_twice() -> None:
    """Configuring again replaces what was there, it does not add."""
    before, stream = io.StringIO(), io.StringIO()
    configure_logging(LogSettings(), stream=before)
    configure_logging(LogSettings(), stream=stream)
    assert len(logged(stream).splitlines()) == 1
    assert before.getvalue() == ""


@pytest.mark.parametrize(("name", "text"), [("level", "loud"), ("level", ""), ("format", "xml")])
def test_unknown_levels_and_forms_are_refused(name: str, text: str) -> None:
    """With the place where they stand, and what may stand there instead."""
    variable = f"ALIQUOT_LOG_{name.upper()}"
    with pytest.raises(SettingsError, match=f"^environment {variable}: '{text}' will not do: .*; write ") as caught:
        Sources(environment={variable: text}).resolve("log", LogSettings)
    assert ("debug, info" in caught.value.remedy) == (name == "level")
