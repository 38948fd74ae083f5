"""How a process says what ended it: a line for each of our errors, a traceback only for a defect."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from aliquot_cli.main import main
from aliquot_cli.scheduler import Settings
from aliquot_core.errors import ClusterError
from aliquot_scheduler.centre.settings import CentreSettings
from aliquot_scheduler.web.settings import WebSettings

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


def test_the_address_for_others_is_not_the_one_to_listen_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both settings are called `address`, and the flag is the first one's."""
    monkeypatch.setattr("aliquot_cli.scheduler.start_logging", lambda _: None)
    settings = Settings(file=None, flags={"address": "https://10.0.0.5:10943"})
    assert settings.centre == CentreSettings(address="https://10.0.0.5:10943")
    assert settings.web == WebSettings()
