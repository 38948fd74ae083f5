"""The interposer stands for the whole of the driver's interface, and nothing unsets it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from aliquot_agent.isolation.limits_file import GpuLimits, decode_account, encode_limits
from support.isolation import CALLING, MIB, ROOT, SOURCES, Built, World, gpu_uuid, names

# Whoever is first compiles everything, which takes a busy machine most of a minute.
pytestmark = [pytest.mark.native, pytest.mark.timeout(600)]

NOT_READY, NOT_SUPPORTED, NOT_FOUND, NOT_INITIALIZED = 802, 801, 500, 3
OUT_OF_MEMORY = "2"
FIRST_ANSWER = 50_000
GIVES = re.compile("Alloc|Create|Retain|Load|Instantiate|Upload|Import|Map|Multicast|Open|SetLimit|Launch")


def ruled(rule: str) -> list[str]:
    """The names of one rule; an empty rule is forwarding."""
    lines = [line.split() for line in (SOURCES / "names.txt").read_text().splitlines() if not line.startswith("#")]
    return [words[0] for words in lines if (words[1] if len(words) > 1 else "") == rule]


def unwritten(built: Built) -> set[str]:
    """The functions of the fake driver that only answer their number."""
    told = subprocess.run(["nm", "-D", built.driver], check=True, capture_output=True, text=True, timeout=60)
    return {line.split()[-1] for line in told.stdout.splitlines() if " W " in line}


def test_every_name_is_exported_and_nothing_else(world: World) -> None:
    """What the library exports is exactly the list of names."""
    library = world.container(memory_mib=1000).library
    told = subprocess.run(
        ["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True, timeout=60
    )
    assert sorted(line.split()[-1] for line in told.stdout.splitlines()) == sorted(names())


def test_every_forwarded_name_reaches_the_function_of_that_name(world: World) -> None:
    """The fake driver answers a number of its own for each name: no jump ends at a neighbour."""
    tenant = world.container(memory_mib=1000).run()
    weak = unwritten(world.built)
    own = [name for name in ruled("") if name in weak]
    assert len(own) > 450
    for name in own:
        assert int(tenant.ask(f"call {name}")) == FIRST_ANSWER + names().index(name)


def test_private_tables_are_the_drivers_but_for_those_that_give_memory(world: World) -> None:
    """The runtime's is a copy, the same each time; what nobody described is the driver's, and nothing is no table."""
    assert world.container(memory_mib=1000).run().ask("tables") == "1 1 1"


def test_every_function_that_gives_memory_or_launches_is_tried() -> None:
    """A new one of ours needs a row in the tables of attacks (tenant/): by its name it takes, opens, maps, launches.

    What fills and copies is made from one list in the library, and tried by some of its rows.
    """
    parts = [*(ROOT / "tests" / "isolation" / "tenant").glob("*.c"), CALLING]
    tried = {name for part in parts for name in re.findall(r"CU\((cu\w+)\)", part.read_text())}
    giving = [name for name in ruled("ours") if GIVES.search(name)]
    assert len(giving) > 50
    assert set(giving) <= tried


def copies() -> dict[str, tuple[str, str]]:
    """What fills and copies, for both default streams: the parameters of each, and how they are passed on."""
    text = re.sub(r"\\\n\s*", "", (SOURCES / "copies.h").read_text())
    found: dict[str, tuple[str, str]] = {}
    for kind, thread in (("SYNC", "_ptds"), ("ASYNC", "_ptsz")):
        (rows,) = re.findall(rf"#define EACH_{kind}\(X\)(.*)", text)
        for name, shape, passed in re.findall(r"X\((\w+), .*?\s*\(([^()]*)\),\s*\(([^()]*)\)\)", rows):
            found |= {name: (shape, passed), name + thread: (shape, passed)}
        (rows,) = re.findall(rf"#define EACH_TOLD_{kind}\(X\)(.*)", text)
        alike = (
            ("const void *copy", "copy") if kind == "SYNC" else ("const void *copy, CUstream stream", "copy, stream")
        )
        found |= {each: alike for name in re.findall(r"X\((\w+),", rows) for each in (name, name + thread)}
    (rows,) = re.findall(r"#define EACH_BATCH\(X\)(.*)", text)
    for name, shape, passed in re.findall(r"X\((\w+),\s*\(([^()]*)\),\s*\(([^()]*)\)\)", rows):
        found |= {each: (shape, passed.replace("told.", "")) for each in (name, f"{name}_ptsz")}
    return found


def test_every_copy_reaches_the_function_of_that_name(world: World) -> None:
    """As the forwarded ones do, whichever of both default streams it is for; and none of them takes memory."""
    container = world.container(memory_mib=1000)
    tenant = container.run().started()
    own = sorted(copies().keys() & unwritten(world.built))
    assert len(own) > 60
    for name in own:
        assert int(tenant.ask(f"call {name}")) == FIRST_ANSWER + names().index(name)
    assert container.account().processes[tenant.process.pid] == (world.context,)


@pytest.mark.parametrize("name", sorted(copies()))
def test_a_copy_passes_on_what_it_was_given(name: str) -> None:
    """All of its parameters, in their order."""
    shape, passed = copies()[name]
    assert [re.findall(r"\w+", parameter)[-1] for parameter in shape.split(",")] == passed.split(", ")


def test_refused_names_say_that_they_are_not_supported(world: World) -> None:
    """32-bit forms and contexts of a display answer 801, never the driver's function."""
    tenant = world.container(memory_mib=1000).run().started()
    assert {tenant.ask(f"call {name}") for name in ruled("refused")} == {str(NOT_SUPPORTED)}


@pytest.mark.parametrize(
    ("how", "name", "told"),
    [("aside", "cuCheckpointProcessCheckpoint", range(64)), ("restore", "cuCheckpointProcessRestore", range(8, 64))],
)
def test_a_process_is_put_aside_and_brought_back_where_it_is_charged(
    world: World, how: str, name: str, told: range
) -> None:
    """On other GPUs, or in another process' hands, nothing is charged for it: no word of how to do that is passed on.

    An address of GPUs that none are at says nothing.
    """
    tenant = world.container(memory_mib=1000).run()
    answers_itself = str(FIRST_ANSWER + names().index(name))
    answers = {at: tenant.ask(f"{how} {at}") for at in range(65)}
    assert {at for at, answer in answers.items() if answer == str(NOT_SUPPORTED)} == set(told)
    assert {answers[at] for at in answers if at not in told} == {answers_itself}


def test_a_process_that_is_put_aside_stays_charged(world: World) -> None:
    """It is to find room when it comes back."""
    container = world.container(memory_mib=1400)
    one, two = (container.run().started() for _ in range(2))
    assert one.ask(f"fill linear {100 * MIB}").split()[0] == "8"
    for how in ("aside", "restore"):
        one.ask(f"{how} 64")
        assert container.account().processes[one.process.pid] == (1100 * MIB,)
        assert two.ask(f"take linear {MIB}") == OUT_OF_MEMORY


@pytest.mark.parametrize(
    ("symbol", "version", "flags", "expected"),
    [
        ("cuMemAlloc", 12000, 0, "cuMemAlloc_v2"),
        ("cuMemAllocAsync", 12000, 2, "cuMemAllocAsync_ptsz"),
        ("cuLaunchKernel", 12000, 2, "cuLaunchKernel_ptsz"),
        ("cuLaunchKernel", 12000, 0, "cuLaunchKernel"),
        ("cuCtxCreate", 4000, 0, "cuCtxCreate_v2"),
        ("cuGraphInstantiate", 12000, 0, "cuGraphInstantiateWithFlags"),
        ("cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"),
    ],
)
def test_a_function_looked_up_by_name_is_ours(
    world: World, symbol: str, version: int, flags: int, expected: str
) -> None:
    """A look-up answers the wrapped function in the variant that the version and the flags ask for."""
    container = world.container(memory_mib=1000)
    tenant = container.run().started()
    result, _, name, where = tenant.ask(f"lookup {symbol} {version} {flags}").split()
    assert (result, name, where) == ("0", expected, str(container.library))


def test_a_new_way_to_allocate_is_refused_and_other_news_forwarded(world: World) -> None:
    """A name that the list lacks is not found if it looks like allocating; otherwise the driver's own is answered."""
    tenant = world.container(memory_mib=1000).run().started()
    result, status, name, _ = tenant.ask("lookup cuMemAllocFromTheFuture 14000 0").split()
    assert (result, status, name) == (str(NOT_FOUND), "1", "-")
    result, _, name, where = tenant.ask("lookup cuDeviceAskTheFuture 14000 0").split()
    assert (result, name, where) == ("0", "cuDeviceAskTheFuture", str(world.built.driver))


def test_an_older_name_of_the_list_is_not_taken_for_a_newer_one(world: World) -> None:
    """A function that is refused by its only form is refused when it is looked up, too."""
    tenant = world.container(memory_mib=1000).run().started()
    assert tenant.ask("lookup cuGLCtxCreate 12000 0").split()[0] == str(NOT_FOUND)


@pytest.mark.parametrize("symbol", ["cuMemAlloc_v2", "cuMemAlloc", "cuGraphLaunch", "cuMemPoolDestroy"])
def test_no_version_is_so_old_that_the_drivers_own_is_answered(world: World, symbol: str) -> None:
    """A function of ours that is asked for by a version from before all of its variants is not found."""
    tenant = world.container(memory_mib=1000).run().started()
    assert tenant.ask(f"lookup {symbol} 1000 0").split()[0] == str(NOT_FOUND)


def test_who_asks_before_the_driver_is_begun_with_is_told_so(world: World) -> None:
    """By the driver's own word, and not that there is no such device."""
    tenant = world.container(memory_mib=1000).run()
    assert tenant.ask("too-early").split() == [str(NOT_INITIALIZED)] * 4


@pytest.mark.parametrize("line", ["too-early", "call cuMemPrefetchAsync", "call cuDeviceGraphMemTrim"])
def test_a_device_is_known_once_the_driver_is_begun_with(world: World, line: str) -> None:
    """Whatever was called before."""
    tenant = world.container(memory_mib=1000).run()
    tenant.ask(line)
    assert tenant.ask("start") == "0"
    assert tenant.ask(f"take linear {MIB}") == "0"


def test_without_limits_there_is_no_gpu(world: World) -> None:
    """A container whose limits are gone, or are not what the agent writes, gets 802 from every function."""
    container = world.container(memory_mib=1000)
    container.limits_path.write_bytes(b"?" * 4096)
    assert container.run().ask("start") == str(NOT_READY)
    container.limits_path.unlink()
    assert container.run().ask("call cuDeviceGetName") == str(NOT_READY)


def test_an_account_of_another_size_is_not_used(world: World) -> None:
    """A tenant that puts a longer or shorter file in the account's place gets no GPU."""
    container = world.container(memory_mib=1000)
    container.account_path.write_bytes(bytes(1 << 20))
    assert container.run().ask("start") == str(NOT_READY)


def test_no_variable_of_the_environment_is_read() -> None:
    """Nothing in the interposer asks for the environment, so nothing in it can be unset or overridden by a tenant."""
    sources = [path.read_text() for path in SOURCES.glob("*.[ch]")]
    assert sources
    assert not [text for text in sources if re.search(r"\b(secure_)?getenv\b|\benviron\b", text)]


def test_a_program_that_empties_its_environment_is_limited_too(world: World, tmp_path: Path) -> None:
    """Found as libcuda.so.1 on the library path as it is when it is mounted, it needs no LD_PRELOAD and no variable."""
    container = world.container(memory_mib=1000)
    program = (
        "import ctypes, sys; lib = ctypes.CDLL(sys.argv[1]); p = ctypes.c_uint64(); ctx = ctypes.c_void_p();"
        "lib.cuInit(0); lib.cuDevicePrimaryCtxRetain(ctypes.byref(ctx), 0); lib.cuCtxSetCurrent(ctx);"
        "print(lib.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(2000 << 20)))"
    )
    environment = {"FAKE_CUDA_WORLD": str(world.path), "FAKE_CUDA_TENANT": str(container.number)}
    command = [sys.executable, "-E", "-S", "-c", program, str(container.library)]
    told = subprocess.run(
        command, check=True, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=30
    )
    assert told.stdout.strip() == "2"
    assert container.peak == world.context


def test_the_library_needs_nothing_but_libc(world: World) -> None:
    """Its only needed libraries are the C library's own, in versions that images of 2017 have."""
    library = world.container(memory_mib=1000).library
    told = subprocess.run(["objdump", "-p", library], check=True, capture_output=True, text=True, timeout=60).stdout
    needed = set(re.findall(r"NEEDED\s+(\S+)", told))
    assert needed <= {"libc.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2"}
    versions = {tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_([0-9.]+)", told)}
    assert max(versions) <= (2, 17)


def test_what_the_agent_writes_is_what_the_library_reads(world: World) -> None:
    """Memory, limits by uuid and the account's slots agree between Python and C, for the second GPU too."""
    world.memory_mib = (16_384, 8_192)
    world.__post_init__()
    container = world.container(memory_mib=1234, gpus=2)
    tenant = container.run().started()
    assert tenant.ask("info").split()[2] == str(1234 << 20)
    assert container.account().processes == {tenant.process.pid: (world.context, 0)}


def test_a_gpu_that_was_not_granted_gives_no_context(world: World) -> None:
    """The container's limits name other GPUs: this one is an invalid device to it."""
    container = world.container(memory_mib=1000)
    other = [GpuLimits(uuid=gpu_uuid(7), memory=1 << 30, context=0, guarantee=1_000_000, rate=1_000_000)]
    container.limits_path.write_bytes(encode_limits(other, driver=str(world.built.driver)))
    assert container.run().ask("start") == "101"


def test_an_account_that_is_none_is_not_read() -> None:
    """What a tenant wrote in the account's place is None to the agent, never an error."""
    assert decode_account(os.urandom(262_144), gpus=1) is None
    assert decode_account(b"", gpus=1) is None


def test_the_list_of_names_is_sorted_and_without_doubles() -> None:
    """So that two changes to it meet where they belong."""
    assert (ROOT / "isolation" / "names.txt").exists()
    assert names() == sorted(set(names()))
