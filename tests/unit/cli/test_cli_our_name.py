"""What `aliquot up` tells a person to type next: it must work in whatever folder their other terminal is."""

from __future__ import annotations

from pathlib import Path

from aliquot_cli.up import our_name


def test_what_is_told_to_type_works_from_any_folder(tmp_path: Path) -> None:
    """Our command where a shell finds it; else the one beside this Python, by its whole path; else Python itself."""
    python = tmp_path / "a folder" / "python"
    python.parent.mkdir()
    assert our_name(found=True, python=python) == "aliquot"
    assert our_name(found=False, python=python) == f"'{python}' -m aliquot_cli.main"
    (python.parent / "aliquot").touch()
    assert our_name(found=False, python=python) == f"'{python.parent}/aliquot'"
