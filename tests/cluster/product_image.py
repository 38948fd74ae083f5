"""Aliquot's own image without a registry: this machine's Python and packages, laid out as daemonset/Dockerfile does.

The interpreter lies where this machine has it, as its base image's does; everything of ours lies in /opt/aliquot, a
virtual environment with just the packages of the locked requirements, and is what the entry point runs.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import distribution
from importlib.util import cache_from_source
from pathlib import Path

from cluster.harness.images import Image

ROOT = Path(__file__).resolve().parents[2]
# As the manifests have them.
PRODUCT_IMAGE = "aliquot:0.1.0"
CENTRE_IMAGE = "aliquot-scheduler:0.1.0"
HOME = "/opt/aliquot"
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
PACKAGES = f"{HOME}/lib/{PYTHON}/site-packages"

# The largest parts of the standard library that no server needs.
NOT_NEEDED = {"site-packages", "dist-packages", "test", "tests", "idlelib", "tkinter", "ensurepip", "lib2to3"}
# As in the Dockerfile: 123 MB of generated classes, of which nothing is ever imported.
NEVER_IMPORTED = re.compile(r"kubernetes/(aio/|client/api/|client/models/(__pycache__/)?(?!__))")
ENTRY = f"#!{HOME}/bin/python\nfrom aliquot_cli.main import main\n\nmain()\n"


def product_image() -> Image:
    """Endpoint and agent."""
    return _image(PRODUCT_IMAGE, lock="run")


def centre_image() -> Image:
    """The centre, which needs more."""
    return _image(CENTRE_IMAGE, lock="centre")


def _image(reference: str, *, lock: str) -> Image:
    content = {str(path): path for path in _interpreter()} | _requirements(lock) | _ours()
    return Image(
        reference=reference,
        content={
            **content,
            **_shared_libraries(content.values()),
            f"{HOME}/bin/aliquot": ENTRY.encode(),
            f"{HOME}/pyvenv.cfg": f"home = {_executable().parent}\nversion = {sys.version.split()[0]}\n".encode(),
        },
        links={f"{HOME}/bin/python": str(_executable())},
        entrypoint=[f"{HOME}/bin/aliquot"],
        env={"PYTHONDONTWRITEBYTECODE": "1"},
    )


def _executable() -> Path:
    return Path(sys.base_prefix) / "bin" / PYTHON


def _interpreter() -> Iterator[Path]:
    """The interpreter and its standard library, compiled files included: in the container nothing can be written."""
    yield _executable()
    for folder, subfolders, files in os.walk(sysconfig.get_path("stdlib")):
        subfolders[:] = [name for name in subfolders if name not in NOT_NEEDED and not name.startswith("config-")]
        yield from (Path(folder) / name for name in files if not (name.startswith("_tkinter") or ".opt-" in name))


def _requirements(lock: str) -> dict[str, bytes | Path]:
    """The files of the locked distributions."""
    locked = re.findall(r"^([a-z][-a-z0-9]*)==", (ROOT / "requirements" / f"{lock}.lock").read_text(), re.MULTILINE)
    files: dict[str, bytes | Path] = {
        f"{PACKAGES}/{file}": Path(str(file.locate()))
        for name in locked
        for file in distribution(name).files or ()
        if _is_wanted(str(file)) and Path(str(file.locate())).is_file()
    }
    return files | dict(_compiled(files))


def _compiled(files: Mapping[str, bytes | Path]) -> Iterator[tuple[str, Path]]:
    """What this machine has compiled of them; without, each start of an agent takes half a second more.

    A Dockerfile compiles all; the environment of the tests was installed without, and lists nothing of it.
    """
    for name, source in files.items():
        if isinstance(source, Path) and source.suffix == ".py":
            compiled = Path(cache_from_source(source))
            if compiled.is_file():
                yield f"{Path(name).parent}/__pycache__/{compiled.name}", compiled


def _is_wanted(file: str) -> bool:
    return not file.startswith("..") and not NEVER_IMPORTED.match(file)


def _ours() -> dict[str, bytes | Path]:
    """The packages of the wheel."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    folders = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    content: dict[str, bytes | Path] = {f"{PACKAGES}/{Path(folder).name}": ROOT / folder for folder in folders}
    about = f"Metadata-Version: 2.4\nName: {project['project']['name']}\nVersion: {project['project']['version']}\n"
    return content | {f"{PACKAGES}/aliquot-{project['project']['version']}.dist-info/METADATA": about.encode()}


def _shared_libraries(contents: Iterable[bytes | Path]) -> dict[str, bytes | Path]:
    """What the interpreter and the compiled modules load, and the loader itself."""
    paths = [each for each in contents if isinstance(each, Path)]
    compiled = [str(path) for path in paths if ".so" in path.suffixes or path == _executable()]
    told = subprocess.run(["ldd", *compiled], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"(?:=> |^\s+)(/\S+) \(0x", told, re.MULTILINE)
    # What a package brings along it finds beside itself.
    return {name: Path(name).resolve() for name in dict.fromkeys(found) if not name.startswith(sys.prefix)}
