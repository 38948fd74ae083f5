"""A folder's README names what is in it, so that a reader finds every module by its job."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def modules(folder: Path) -> list[str]:
    """The modules of a folder, without what lies deeper; settings say by their name what they are."""
    return sorted(path.stem for path in folder.glob("[a-z]*.py") if path.stem != "settings")


def named(text: str) -> set[str]:
    """Every word between backticks."""
    return set(re.findall(r"`([a-z_/]+)`", text))


@pytest.mark.parametrize("source_root", ["cli", "kube", "standalone"])
def test_every_module_is_named(source_root: str) -> None:
    """In the tables of the README beside it."""
    there = modules(ROOT / source_root / f"aliquot_{source_root}")
    assert there
    assert set(there) <= named((ROOT / source_root / "README.md").read_text())


def test_every_folder_of_the_centre_has_a_row_with_its_modules() -> None:
    """A row may say `all` of what is pure, where everything there is, or leave it to a section of the folder's own."""
    text, package = (ROOT / "scheduler" / "README.md").read_text(), ROOT / "scheduler" / "aliquot_scheduler"
    first_table = text.partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `([a-z]+)/` \|(.*)$", first_table, flags=re.MULTILINE))
    folders = {path.parent.name: path.parent for path in package.glob("*/__init__.py")}
    assert rows.keys() == folders.keys()
    for name, row in rows.items():
        inside = text.partition(f"\n## Inside `{name}/`\n")[2].partition("\n## ")[0]
        assert "| all |" in row or set(modules(folders[name])) <= named(row + inside), name
    assert {name for folder in package.glob("queues/**/") for name in modules(folder)} <= named(text)


def test_no_table_of_the_centre_names_what_is_not_there() -> None:
    """A module that was renamed or taken away leaves its row too."""
    text = (ROOT / "scheduler" / "README.md").read_text()
    rows = "\n".join(line for line in text.splitlines() if line.startswith("|"))
    there = {path.stem for path in (ROOT / "scheduler").rglob("*.py")}
    assert {word for word in named(rows) if not word.endswith("/")} <= there
