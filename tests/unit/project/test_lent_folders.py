"""Folders that tests lend to processes which they kill."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from support.folders import lent_folder


def test_a_folder_is_gone_though_somebody_still_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes into it while it is being removed is removed too."""
    remove, removals = shutil.rmtree, []

    def written_meanwhile(folder: Path) -> None:
        removals.append(folder)
        if len(removals) == 1:
            (folder / "last-words").write_text("x")
            folder.rmdir()
        remove(folder)

    monkeypatch.setattr(shutil, "rmtree", written_meanwhile)
    with lent_folder("at-") as folder:
        (folder / "first").mkdir()
    assert removals == [folder, folder]
    assert not folder.exists()
