"""Builds the interposer, a fake CUDA driver and a tenant that uses both, and lets tests watch what really is taken.

The fake driver counts memory and GPU time by tenant in a file of its own, which neither tenants nor the interposer know
of: what a test asserts is read from there.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import select
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import pytest

from aliquot_agent.isolation.limits_file import (
    ACCOUNT_BYTES,
    WHOLE,
    Account,
    GpuLimits,
    decode_account,
    encode_limits,
    encode_live,
    live_offset,
)
from support.require import skip_or_fail

ROOT = Path(__file__).parent.parent.parent
SOURCES = ROOT / "isolation"
TESTED = ROOT / "tests" / "isolation"
# What programs on the fake driver and on a real GPU have in common.
CALLING = ROOT / "tests" / "gpu" / "calling.c"
LIBRARY = "libcuda.so.1"
MIB = 1024 * 1024
CONTEXT = 300 * MIB
# To compile everything takes a busy machine most of a minute.
_BUILT_WITHIN = 180
_WORLD_BYTES = 1 << 20
_WORLD_MAGIC = 0x444C524F57454B46
_TENANTS_AT = 8 * 3 + 8 * 8
# Behind 32 tenants, and three words by GPU and four more: birth, pid, tenant; by GPU memory, work asked for, work done.
_PROCESSES_AT = _TENANTS_AT + 32 * 192 + 3 * 64 + 4 * 8
_PROCESS = struct.Struct("<QII25Q")
_PROCESSES = 1024
_OLD_LIBRARIES = ["-Wl,--no-as-needed", "-l:libdl.so.2", "-l:libpthread.so.0"]
# For what a busy machine makes wait.
PATIENCE_S = 60
_WARNINGS = ["-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-g"]


def expect_soon(what: Callable[[], bool], *, why: str) -> None:
    """Until it holds, for a minute at most."""
    end = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < end, why
        time.sleep(0.01)


def gpu_uuid(index: int) -> str:
    """The uuid that the fake driver gives its GPUs."""
    return f"GPU-a0a0a0a0-a0a0-a0a0-a0a0-a0a0a0a0a0{index:02x}"


@dataclass(frozen=True, kw_only=True)
class Built:
    """What was compiled once for these sources."""

    objects: Path
    driver: Path
    tenant: Path
    flags: tuple[str, ...]

    def link(self, *, folder: Path) -> Path:
        """An interposer whose limits and account lie in that folder."""
        places = folder / "places.c"
        places.write_text(
            f'const char limits_path[] = "{folder}/limits";\nconst char account_path[] = "{folder}/account";\n'
        )
        library = folder / "lib" / LIBRARY
        library.parent.mkdir()
        objects = sorted(str(path) for path in self.objects.glob("*.o"))
        script = f"-Wl,--version-script={SOURCES / 'exports.map'}"
        shared = ["-shared", "-fPIC", f"-Wl,-soname,{LIBRARY}", script, "-Wl,-z,now"]
        command = ["gcc", *self.flags, *shared, "-o", str(library), *objects, str(places), *_OLD_LIBRARIES]
        subprocess.run(command, check=True, timeout=_BUILT_WITHIN)
        return library


def build(*, cache: Path, sanitize: bool = False) -> Built:
    """Compile interposer, fake driver and tenant, unless a process that shares the folder has compiled them."""
    if not shutil.which("gcc") or not shutil.which("make"):
        skip_or_fail("native", "gcc or make is not installed")
    flags = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all") if sanitize else ("-O2",)
    while True:
        digest = _digest()
        folder = cache / f"isolation-{digest}{'-sanitized' if sanitize else ''}"
        if _provide(folder, digest=digest, flags=flags):
            tenant = folder / "tenant"
            return Built(objects=folder / "objects", driver=folder / "real" / LIBRARY, tenant=tenant, flags=flags)


def _digest() -> str:
    """Of all that is compiled."""
    seen = hashlib.sha256()
    for path in sorted([*SOURCES.rglob("*"), *TESTED.rglob("*.[ch]"), *CALLING.parent.glob("*.[ch]")]):
        if path.is_file():
            seen.update(f"{path} {path.stat().st_size}\n".encode() + path.read_bytes())
    return seen.hexdigest()[:16]


def _provide(folder: Path, *, digest: str, flags: tuple[str, ...]) -> bool:
    """Have it there, whole; false if the sources have been changed while they were compiled."""
    with folder.with_suffix(".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            return True
        fresh = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
        _compile(fresh, flags=flags)
        unchanged = _digest() == digest
        if unchanged:
            fresh.rename(folder)
        return unchanged


def _compile(folder: Path, *, flags: tuple[str, ...]) -> None:
    (folder / "real").mkdir()
    # Others wait for it: so it takes all processors.
    make = ["make", "-s", f"-j{os.cpu_count()}", "-C", str(SOURCES), "objects", f"OUT={folder / 'objects'}"]
    subprocess.run([*make, f"CFLAGS=-g {' '.join(flags)}"], check=True, timeout=_BUILT_WITHIN)
    weak = folder / "weak.c"
    weak.write_text(
        "".join(
            f"int {name}(void);\n__attribute__((weak)) int {name}(void) {{ return {number}; }}\n"
            for number, name in enumerate(names(), start=50_000)
        )
    )
    fakes = [str(path) for path in sorted((TESTED / "fake_cuda").glob("*.c"))]
    shared = ["-shared", "-fPIC", "-pthread", f"-Wl,-soname,{LIBRARY}", "-o", str(folder / "real" / LIBRARY)]
    base = ["gcc", *_WARNINGS, *flags, f"-I{SOURCES}"]
    subprocess.run([*base, *shared, *fakes, str(weak)], check=True, timeout=_BUILT_WITHIN)
    parts = [str(path) for path in (*sorted((TESTED / "tenant").glob("*.c")), CALLING)]
    subprocess.run([*base, "-o", str(folder / "tenant"), *parts, "-ldl", "-pthread"], check=True, timeout=_BUILT_WITHIN)


def names() -> list[str]:
    """Every function of the driver's interface that the interposer knows."""
    lines = (SOURCES / "names.txt").read_text().splitlines()
    return [line.split()[0] for line in lines if line and not line.startswith("#")]


@dataclass(kw_only=True)
class World:
    """The GPUs of the fake driver, and what they say of each tenant."""

    built: Built
    folder: Path
    memory_mib: tuple[int, ...] = (16_384,)
    context: int = CONTEXT
    tenants: list[Tenant] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Write the file that all processes share."""
        memory = [size * MIB for size in self.memory_mib] + [0] * (8 - len(self.memory_mib))
        head = struct.pack("<3Q8Q", _WORLD_MAGIC, len(self.memory_mib), self.context, *memory)
        self.path.write_bytes(head.ljust(_WORLD_BYTES, b"\0"))

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / "world"

    def used(self, tenant: int, *, gpu: int = 0) -> int:
        """Bytes that the tenant's processes hold now."""
        return self._word(tenant, 0, gpu)

    def peak(self, tenant: int, *, gpu: int = 0) -> int:
        """The most that they ever held."""
        return self._word(tenant, 1, gpu)

    def busy_ns(self, tenant: int, *, gpu: int = 0) -> int:
        """GPU time that they used."""
        return self._word(tenant, 2, gpu)

    def queued_ns(self, tenant: int, *, gpu: int = 0) -> int:
        """GPU time that its processes have asked for and not had yet, as of when one of them last looked."""
        content = self.path.read_bytes()
        queued = 0
        for at in range(_PROCESSES_AT, _PROCESSES_AT + _PROCESSES * _PROCESS.size, _PROCESS.size):
            born, _, whose, *times = _PROCESS.unpack_from(content, at)
            if born and whose == tenant:
                queued += times[8 + gpu] - times[16 + gpu]
        return queued

    def _word(self, tenant: int, column: int, gpu: int) -> int:
        with self.path.open("rb") as file:
            file.seek(_TENANTS_AT + 192 * tenant + 64 * column + 8 * gpu)
            return int.from_bytes(file.read(8), "little")

    def container(self, *, memory_mib: int, guarantee: int = 100, rate: int = 100, gpus: int = 1) -> Container:
        """A container with its limits, whose processes count as one tenant."""
        folder = self.folder / f"container-{len(self.tenants)}-{time.monotonic_ns()}"
        folder.mkdir()
        limits = [
            GpuLimits(
                uuid=gpu_uuid(index),
                memory=memory_mib * MIB,
                context=self.context,
                guarantee=guarantee * WHOLE // 100,
                rate=rate * WHOLE // 100,
            )
            for index in range(gpus)
        ]
        return Container(world=self, folder=folder, number=len(list(self.folder.glob("container-*"))) - 1, gpus=limits)

    def close(self) -> None:
        """End every process that is left."""
        for tenant in self.tenants:
            tenant.close()


@dataclass(kw_only=True, eq=False)
class Container:
    """One container: its two files and the library that is mounted into it."""

    world: World
    folder: Path
    number: int
    gpus: list[GpuLimits]

    def __post_init__(self) -> None:
        """Do what the agent does before the container starts."""
        self.limits_path.write_bytes(encode_limits(self.gpus, driver=str(self.world.built.driver)))
        self.account_path.write_bytes(bytes(ACCOUNT_BYTES))
        self.library = self.world.built.link(folder=self.folder)

    @property
    def limits_path(self) -> Path:
        """What the container may use."""
        return self.folder / "limits"

    @property
    def account_path(self) -> Path:
        """What it holds."""
        return self.folder / "account"

    @property
    def used(self) -> int:
        """What its processes really hold."""
        return self.world.used(self.number)

    @property
    def peak(self) -> int:
        """The most that they ever held."""
        return self.world.peak(self.number)

    def account(self) -> Account:
        """What they say they hold."""
        account = decode_account(self.account_path.read_bytes(), gpus=len(self.gpus))
        assert account is not None
        return account

    def set(self, limits: GpuLimits, *, gpu: int = 0) -> None:
        """Change the limits of a running container, as the agent does."""
        self.gpus[gpu] = limits
        with self.limits_path.open("r+b") as file:
            file.seek(live_offset(gpu))
            file.write(encode_live(limits))

    def nvml(self, *, driver: Path) -> Path:
        """The folder of the NVML that is put in front of that one, for this container."""
        out = self.folder / "nvml"
        places, make = self.folder / "places.c", ["make", "-s", "-C", str(SOURCES), "nvml"]
        told = [f"OUT={out}", f"NVML={driver}", f"PLACES={places}", f"CFLAGS=-g {' '.join(self.world.built.flags)}"]
        subprocess.run([*make, *told], check=True, timeout=_BUILT_WITHIN)
        return out

    def run(
        self, *, interposed: bool = True, environment: dict[str, str] | None = None, under: Sequence[str] = ()
    ) -> Tenant:
        """Start a process in it, by that program if one is named."""
        library = self.library if interposed else self.world.built.driver
        tenant = Tenant(
            command=[*under, str(self.world.built.tenant)],
            environment={
                "LD_LIBRARY_PATH": str(library.parent),
                "FAKE_CUDA_WORLD": str(self.world.path),
                "FAKE_CUDA_TENANT": str(self.number),
                "ASAN_OPTIONS": "detect_leaks=0",
                **(environment or {}),
            },
            sanitized="-O2" not in self.world.built.flags,
        )
        self.world.tenants.append(tenant)
        return tenant


class Tenant:
    """One process that takes memory and GPU time as it is told."""

    def __init__(self, *, command: Sequence[str], environment: dict[str, str], sanitized: bool) -> None:
        environment = {"PATH": os.environ["PATH"], **environment}
        if sanitized:
            environment["LD_PRELOAD"] = subprocess.run(
                ["gcc", "-print-file-name=libasan.so"], check=True, capture_output=True, text=True, timeout=60
            ).stdout.strip()
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._told = "nothing"
        self._said = b""

    def tell(self, line: str) -> None:
        """Tell it to do something."""
        assert self.process.stdin
        self._told = line
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self, *, within: float = PATIENCE_S) -> str:
        """Its next answer: one that hangs is not waited for until the whole test is too late."""
        end = time.monotonic() + within
        while b"\n" not in self._said and self._says_more(end - time.monotonic(), within):
            pass
        line, _, self._said = self._said.partition(b"\n")
        if not line:
            pytest.fail(f"the tenant ended with {self.process.wait(60)}, told {self._told!r}", pytrace=False)
        return line.decode().strip()

    def _says_more(self, seconds: float, of: float) -> bool:
        assert self.process.stdout
        if not select.select([self.process.stdout], [], [], max(0, seconds))[0]:
            pytest.fail(f"the tenant has not answered within {of:g} s, told {self._told!r}", pytrace=False)
        more = os.read(self.process.stdout.fileno(), 65_536)
        self._said += more
        return bool(more)

    def ask(self, line: str) -> str:
        """Tell it, and wait for the answer."""
        self.tell(line)
        return self.answer()

    def started(self) -> Self:
        """Let it make a context."""
        assert self.ask("start") == "0"
        return self

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait(60)
        for stream in (self.process.stdin, self.process.stdout):
            if stream:
                stream.close()
