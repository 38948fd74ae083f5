"""What is compiled for these tests: once for all processes of a run, and never from other sources than there are."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fcntl import flock
from pathlib import Path
from typing import IO

import pytest

from support import isolation
from support.isolation import PATIENCE_S, build, expect_soon

pytestmark = [pytest.mark.native, pytest.mark.timeout(600)]


@dataclass
class Compiler:
    """In place of the real one: remembers what it was given, and leaves that in what it compiles."""

    source: Path
    meanwhile: list[str] = field(default_factory=list)  # what somebody writes into the source next
    compiled: list[str] = field(default_factory=list)
    may_end: threading.Event = field(default_factory=threading.Event)

    def __call__(self, folder: Path, *, flags: tuple[str, ...]) -> None:
        """Compile."""
        assert flags
        self.compiled.append(self.source.read_text())
        assert self.may_end.wait(PATIENCE_S)
        (folder / "tenant").write_text(self.compiled[-1])
        if self.meanwhile:
            self.source.write_text(self.meanwhile.pop(0))


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    """One source and nothing else."""
    sources, nothing = tmp_path / "sources", tmp_path / "nothing"
    for folder in (sources, nothing):
        folder.mkdir()
    compiler = Compiler(sources / "own.c")
    compiler.source.write_text("first")
    compiler.may_end.set()
    monkeypatch.setattr(isolation, "SOURCES", sources)
    monkeypatch.setattr(isolation, "TESTED", nothing)
    monkeypatch.setattr(isolation, "CALLING", nothing / "calling.c")
    monkeypatch.setattr(isolation, "_compile", compiler)
    return compiler


def test_who_builds_at_the_same_time_compiles_once(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one waits until it is there, and both have the same."""
    come: list[int] = []

    def lock(file: IO[bytes], how: int) -> None:
        come.append(how)
        flock(file, how)

    monkeypatch.setattr("fcntl.flock", lock)
    compiler.may_end.clear()
    with ThreadPoolExecutor(2) as pool:
        builds = [pool.submit(build, cache=tmp_path) for _ in range(2)]
        try:
            expect_soon(lambda: len(come) == 2 or len(compiler.compiled) == 2, why="one of them does not come")
        finally:
            compiler.may_end.set()
    assert compiler.compiled == ["first"]
    assert [done.result().tenant.read_text() for done in builds] == ["first", "first"]


def test_other_sources_are_compiled_anew(compiler: Compiler, tmp_path: Path) -> None:
    """Whatever lies there of the ones before, or of the same with sanitizers."""
    assert build(cache=tmp_path).tenant != build(cache=tmp_path, sanitize=True).tenant
    compiler.source.write_text("other")
    assert build(cache=tmp_path).tenant.read_text() == "other"
    compiler.source.rename(compiler.source.with_name("renamed.c"))
    compiler.source = compiler.source.with_name("renamed.c")
    build(cache=tmp_path)
    assert compiler.compiled == ["first", "first", "other", "other"]


def test_what_was_changed_while_it_was_compiled_is_not_used(compiler: Compiler, tmp_path: Path) -> None:
    """Nor found by anybody later, when the sources are again what they were."""
    compiler.meanwhile = ["second"]
    assert build(cache=tmp_path).tenant.read_text() == "second"
    compiler.source.write_text("first")
    assert build(cache=tmp_path).tenant.read_text() == "first"
    assert compiler.compiled == ["first", "second", "first"]
