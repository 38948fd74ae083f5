"""Putting an API server together: for `aliquot up`, and for tests.

async with serving(clock=SystemClock(), fresh=system_fresh()) as server:
    print(server.url)
"""

from __future__ import annotations

import asyncio
import random
import secrets
import uuid
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from .calling import Address, HttpWebhookCaller
from .frontend import Frontend
from .http import HttpServer
from .journal import Journal
from .metadata import Fresh
from .store import Store
from .streaming import Timing
from .upkeep import refusing, upkeep

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from aliquot_core.clock import Clock

    from .consulting import Service
    from .journal import Recovery
    from .logs import LogSource
    from .store import Json


def system_fresh() -> Fresh:
    """Give identities that nobody can foresee."""
    return Fresh(uid=lambda: str(uuid.uuid4()), choose=secrets.choice)


def seeded_fresh(chance: random.Random) -> Fresh:
    """Give identities that a seed repeats."""
    return Fresh(uid=lambda: str(uuid.UUID(int=chance.getrandbits(128), version=4)), choose=chance.choice)


@asynccontextmanager
async def serving(
    *,
    clock: Clock,
    fresh: Fresh | None = None,
    port: int = 0,
    tokens: Mapping[str, str] | None = None,
    timing: Timing | None = None,
    store: Store | None = None,
    find: Callable[[Service], Address | None] | None = None,
    awaited: Address | None = None,
    if_silent: str = "",
    folder: Path | None = None,
    logs: LogSource | None = None,
    recovered: Callable[[Recovery], None] = lambda _: None,
    say: Callable[[str], None] = lambda _: None,
) -> AsyncIterator[HttpServer]:
    """Serve on loopback for as long as the block runs.

    `find` says where a webhook's Service is, `awaited` is where one is about to listen, and `if_silent` what to say
    where that one does not answer; what is written goes to a journal in the folder, where one is given; `logs` reads
    what containers print; `recovered` is told what the journal had, and `say` tells people while it can't be written.
    """
    store = store or Store()
    async with AsyncExitStack() as stack:
        journal = None
        if folder is not None:
            journal = Journal(folder)
            stack.callback(journal.close)
            recovered(journal.recover(store))
        frontend = Frontend(fresh=fresh or system_fresh(), now=clock.wall(), store=store)
        caller = HttpWebhookCaller(clock=clock, find=find, awaited=awaited, if_silent=if_silent)
        stack.push_async_callback(caller.close)
        server = HttpServer(
            frontend=frontend,
            clock=clock,
            tokens=tokens,
            timing=timing,
            caller=caller,
            logs=logs,
            trouble=lambda: refusing(journal),
        )
        stack.push_async_callback(server.close)
        await server.start(port=port)
        keeping = asyncio.create_task(upkeep(api=frontend.api, clock=clock, journal=journal, say=say))
        stack.push_async_callback(_end, keeping)
        yield server


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def kubeconfig(url: str, *, token: str = "") -> Json:
    """Give what kubectl and every other client reads to find this server.

    The token stands in the address too: kubectl sends no user's token where there is no TLS, but what the address says
    it does, and hides it in whatever it prints.
    """
    name = "aliquot"
    if token:
        url = url.replace("://", f"://{name}:{token}@", 1)
    user = {"token": token} if token else {}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": url}}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}],
        "current-context": name,
    }
