"""What the interposer costs, on the fake driver: calls natively and through it, and a tenant of a whole GPU.

`.venv/bin/python benchmarks/isolation/cost.py`: native and interposed runs alternate, five of each; medians are shown.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.isolation import SOURCES, Built, Container, World, build

RUNS = 5


def compiled(built: Built, folder: Path) -> Path:
    """The program that times calls."""
    program = folder / "cost"
    source = Path(__file__).with_name("cost.c")
    command = ["gcc", "-O2", "-D_GNU_SOURCE", f"-I{SOURCES}", "-o", str(program), str(source), "-ldl"]
    subprocess.run(command, check=True, timeout=60)
    assert built.driver.exists()
    return program


def calls(program: Path, container: Container, *, interposed: bool) -> dict[str, float]:
    """Nanoseconds of each kind of call."""
    library = container.library if interposed else container.world.built.driver
    environment = {
        "LD_LIBRARY_PATH": str(library.parent),
        "FAKE_CUDA_WORLD": str(container.world.path),
        "FAKE_CUDA_TENANT": str(container.number),
    }
    told = subprocess.run([program], check=True, capture_output=True, text=True, env=environment, timeout=60)
    return {name: float(value) for name, value in (line.split() for line in told.stdout.splitlines())}


def launches(container: Container, *, interposed: bool) -> int:
    """Kernels of 200 µs that a tenant of the whole GPU gets through in three seconds."""
    tenant = container.run(interposed=interposed).started()
    count = int(tenant.ask("use 3 kernel 200 100").split()[0])
    tenant.close()
    return count


def main() -> None:
    """Print a table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        built = build(cache=folder)
        world = World(built=built, folder=folder, memory_mib=(16_384, 16_384))
        program = compiled(built, folder)
        whole, half = world.container(memory_mib=8000), world.container(memory_mib=8000, guarantee=50, rate=50)
        two = world.container(memory_mib=8000, gpus=2)
        kinds = {"native": (whole, False), "at 100 %": (whole, True), "at 50 %": (half, True), "of two": (two, True)}
        rows: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
        for _ in range(RUNS):
            for kind, (container, interposed) in kinds.items():
                rows[kind].append(calls(program, container, interposed=interposed))
        for call in rows["native"][0]:
            medians = {kind: statistics.median(row[call] for row in rows[kind]) for kind in kinds}
            more = {kind: value - medians["native"] for kind, value in medians.items()}
            print(call, {kind: f"{value:.0f} ns ({more[kind]:+.0f})" for kind, value in medians.items()})
        pairs = [(launches(whole, interposed=False), launches(whole, interposed=True)) for _ in range(RUNS)]
        print("kernels in 3 s, native and interposed:", pairs)
        print("one tenant at 100 %, slower by", f"{1 - statistics.median(b / a for a, b in pairs):.2%}")
        world.close()


if __name__ == "__main__":
    main()
