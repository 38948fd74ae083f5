"""A real browser, driven over its debugging protocol: Debian's Chromium without a window."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from support.require import skip_or_fail

Json = dict[str, Any]
# Where the browser is, if it is not on PATH.
VARIABLE = "ALIQUOT_CHROMIUM"
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless=new",
    "--remote-debugging-port=0",
    # Tests run as root in containers, where the sandbox has no namespaces to make; pages are our own.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-prefers-reduced-motion",
)
_PATIENCE = 60.0
_LOOK = 0.05
_LISTENING = re.compile(rb"DevTools listening on ws://[^:]+:(\d+)/")


def chromium() -> str:
    """The program; the test is skipped where there is none."""
    found = os.environ.get(VARIABLE) or next(filter(None, map(shutil.which, _NAMES)), None)
    return found or skip_or_fail("page", f"there is no Chromium on PATH (set {VARIABLE}, or tests/node/requirements)")


# Where to press: the middle of the element's first line, if that is what lies there for two frames.
_PLACE = """async (selector) => {
  const found = () => document.querySelector(selector);
  found()?.scrollIntoView({block: 'center', behavior: 'instant'});
  const middle = () => { const r = found()?.getClientRects()[0]; return r && [r.x + r.width / 2, r.y + r.height / 2]; };
  const before = middle();
  for (let i = 0; i < 2; i++) await new Promise(requestAnimationFrame);
  const after = middle();
  const still = before && after && before.every((part, i) => part === after[i]);
  return still && found().contains(document.elementFromPoint(...after)) ? after : null;
}"""


class ScriptError(AssertionError):
    """A script threw."""


class Tab:
    """One page."""

    def __init__(self, *, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Json]] = {}
        # What the page wrote to its console, what it threw, what its policy forbade, what it asked for.
        self.said: list[str] = []
        self.requests: list[str] = []
        self.dialogs: list[str] = []
        self._loads = 0
        self._happened = asyncio.Event()

    async def run(self) -> None:
        """Take in what the browser says, until it is gone."""
        async for message in self._socket:
            told = json.loads(message.data)
            if (number := told.get("id")) is not None:
                if not self._asked[number].done():
                    self._asked[number].set_result(told)
            else:
                self._event(told["method"], told["params"])
            self._happened.set()

    async def ask(self, method: str, **parameters: Any) -> Json:
        """Have something done."""
        number = next(self._numbers)
        future = self._asked[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        async with asyncio.timeout(_PATIENCE):
            answer = await future
        del self._asked[number]
        if error := answer.get("error"):
            raise ScriptError(f"{method}: {error}")
        found: Json = answer["result"]
        return found

    async def prepare(self) -> None:
        """Be told of what happens."""
        for domain in ("Page", "Runtime", "Log", "Network", "Performance"):
            await self.ask(f"{domain}.enable")

    async def open(self, url: str) -> None:
        """Go there, and wait until it is loaded."""
        loads = self._loads
        await self.ask("Page.navigate", url=url)
        await self.until(lambda: self._loads > loads)

    async def evaluate(self, script: str) -> Any:
        """The value of an expression; a promise is waited for."""
        answer = await self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if thrown := answer.get("exceptionDetails"):
            raise ScriptError(str(thrown.get("exception", thrown).get("description", thrown)))
        return answer["result"].get("value")

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds of what was told."""
        async with asyncio.timeout(_PATIENCE):
            while not holds():
                self._happened.clear()
                await self._happened.wait()

    async def until_true(self, script: str) -> None:
        """Wait until an expression is true in the page; while it loads it may throw."""
        async with asyncio.timeout(_PATIENCE):
            while True:
                with contextlib.suppress(ScriptError):
                    if await self.evaluate(f"(async () => Boolean(await {script}))()"):
                        return
                await asyncio.sleep(_LOOK)

    async def click(self, selector: str) -> None:
        """Press what is there, with a real mouse, once it is seen and lies still."""
        # Before the first paint the browser drops whatever the mouse does.
        await self.until_true("performance.getEntriesByName('first-contentful-paint').length")
        place = f"({_PLACE})({json.dumps(selector)})"
        await self.until_true(place)
        x, y = await self.evaluate(place)
        for kind in ("mousePressed", "mouseReleased"):
            await self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    async def press(self, key: str, *, code: int = 0, text: str = "") -> None:
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            await self.ask(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
                **({"text": text} if text and kind == "keyDown" else {}),
            )

    async def write(self, text: str) -> None:
        """Type into what has the focus."""
        await self.ask("Input.insertText", text=text)

    async def picture(self, path: Path, *, width: int = 1280, height: int = 900) -> None:
        """What the reader sees."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await self.ask("Emulation.setDeviceMetricsOverride", **size)
        shot = await self.ask("Page.captureScreenshot", format="png")
        await asyncio.to_thread(path.write_bytes, base64.b64decode(shot["data"]))

    def _event(self, method: str, told: Json) -> None:
        match method:
            case "Page.loadEventFired":
                self._loads += 1
            case "Runtime.consoleAPICalled":
                self.said.append(" ".join(str(one.get("value", one.get("description"))) for one in told["args"]))
            case "Runtime.exceptionThrown":
                self.said.append(str(told["exceptionDetails"].get("exception", {}).get("description")))
            case "Log.entryAdded":
                self.said.append(told["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(told["request"]["url"])
            case "Page.javascriptDialogOpening":
                self.dialogs.append(told["message"])


@asynccontextmanager
async def browsing(*flags: str) -> AsyncIterator[Tab]:
    """A browser with one page, for as long as the block runs."""
    program = chromium()
    with tempfile.TemporaryDirectory(prefix="chromium", ignore_cleanup_errors=True) as folder:
        process = await asyncio.create_subprocess_exec(
            program,
            *_FLAGS,
            *flags,
            f"--user-data-dir={folder}",
            "about:blank",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stderr
        draining: asyncio.Future[None] | None = None
        try:
            async with asyncio.timeout(_PATIENCE):
                port = await _port(process.stderr)
            draining = asyncio.ensure_future(_drained(process.stderr))
            async with aiohttp.ClientSession() as session, _tab(session, port=port) as tab:
                yield tab
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            if draining is not None:
                await draining


async def _port(said: asyncio.StreamReader) -> int:
    """Where the browser listens, as it says once it does."""
    async for line in said:
        if found := _LISTENING.search(line):
            return int(found[1])
    raise ScriptError("the browser ended before it listened")


async def _drained(said: asyncio.StreamReader) -> None:
    """Nobody reads what else it says, and a full pipe would stop it."""
    while await said.read(65536):
        pass


@asynccontextmanager
async def _tab(session: aiohttp.ClientSession, *, port: int) -> AsyncIterator[Tab]:
    async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
        pages = [one for one in await answer.json() if one["type"] == "page"]
    async with session.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=0) as socket:
        tab = Tab(socket=socket)
        listening = asyncio.ensure_future(tab.run())
        try:
            await tab.prepare()
            yield tab
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
