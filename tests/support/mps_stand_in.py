"""Stands in for NVIDIA's nvidia-cuda-mps-control, strictly: a script of its own, started by that name.

As its manual has it: `-d` makes a daemon, `-f` one in the foreground; without either it reads commands, prints answers,
and ends with another code than 0 where no daemon answers. A command that is none is answered by a line that says so.
Stricter than the real one: what we must never do is an error here. A daemon refuses to start without its two folders,
for more than one GPU or for one that is not named by uuid, and where the GPU takes more than one process.

Words that begin with `stand-in:` are the tests': clients that come (pid, uid, percent, memory), go or fault; a single
command that from now on hangs, is refused (the program ends with another code than 0) or is answered by given words.
"""

import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

OPTIONS = {"-d", "-f", "-multiuser-server"}
# What the path of each GPU's compute mode begins with; filled in where this is installed.
MODES = ""


def fail(words: str) -> None:
    """End with what is wrong."""
    sys.stdout.write(words + "\n")
    sys.stdout.flush()
    os._exit(1)


class Daemon:
    """One GPU's control daemon, its servers and their clients."""

    def __init__(self, *, many: bool) -> None:
        self.many = many
        self.lock = threading.Lock()
        self.uid: int | None = None
        self.server = 0
        self.faulty = False
        self.clients: dict[int, str] = {}
        self.queued: list[tuple[int, int, str]] = []
        # By command, what becomes of it: it hangs, is refused, or is answered so.
        self.spoilt: dict[str, tuple[str, str]] = {}

    def answer(self, line: str) -> str | None:
        """One command's answer; None ends the daemon."""
        for pattern, act in self.table():
            if match := re.fullmatch(pattern, line):
                return act(*match.groups())
        return f"Invalid command: {line}"

    def table(self) -> list[tuple[str, Callable[..., str | None]]]:
        """What is understood."""
        return [
            (r"get_server_list", lambda: str(self.server) if self.server else ""),
            (r"get_server_status (\d+)", self.status),
            (r"get_client_list (\d+)", lambda pid: "\n".join(map(str, self.clients)) if self.is_server(pid) else ""),
            (r"quit(?: -t \d+)?", lambda: None),
            (r"stand-in: come (\d+) (\d+) (\d+) (\S+)", self.come),
            (r"stand-in: go (\d+)", self.go),
            (r"stand-in: fault", self.fault),
            (r"stand-in: (hang|refuse|answer) (\w+) ?(.*)", self.spoil),
        ]

    def is_server(self, pid: str) -> bool:
        """Whether that process is the server."""
        return bool(self.server) and int(pid) == self.server

    def status(self, pid: str) -> str:
        """Its state, by its manual's words."""
        if not self.is_server(pid):
            return f"Server {pid} was not found"
        return "FAULT" if self.faulty else "ACTIVE"

    def come(self, pid: str, uid: str, percent: str, memory: str) -> str:
        """A client connects: the server is its user's, or everybody's."""
        if not (1 <= int(percent) <= 100 and re.fullmatch(r"0=\d+M", memory)):
            return "refused: limits that are none"
        if self.faulty:
            return "refused: fault"
        if self.server and not self.many and self.uid != int(uid):
            self.queued.append((int(pid), int(uid), f"{percent} {memory}"))
            return "queued"
        if not self.server:
            self.server, self.uid = self.start_server(), int(uid)
        self.clients[int(pid)] = f"{percent} {memory}"
        return f"served by {self.server}"

    def start_server(self) -> int:
        """A process of its own, which a daemon that is killed leaves behind."""
        pid = os.fork()
        if pid == 0:
            os.closerange(3, 1024)
        while pid == 0:
            signal.pause()
        return pid

    def go(self, pid: str) -> str:
        """A client ends; the last one takes the fault with it."""
        self.clients.pop(int(pid))
        if not self.clients:
            self.faulty = False
        return "gone"

    def fault(self) -> str:
        """Every client's contexts are lost; the server takes none until the last of them has ended."""
        self.faulty = True
        return " ".join(map(str, self.clients))

    def spoil(self, how: str, command: str, words: str) -> str:
        """From now on one command is not answered as it should be, and all others are."""
        self.spoilt[command] = how, words
        return "spoilt"

    def serve(self, listening: socket.socket, log: Path) -> None:
        """Answer whoever speaks, several at a time, until told to quit."""
        while True:
            connection, _ = listening.accept()
            threading.Thread(target=self.converse, args=(connection, log), daemon=True).start()

    def converse(self, connection: socket.socket, log: Path) -> None:
        """Answer one of them."""
        with connection, connection.makefile("rw") as lines:
            for line in lines:
                how, words = self.spoilt.get(line.split()[0], ("", ""))
                if how == "refuse":
                    return
                if how == "hang":
                    threading.Event().wait()
                with self.lock:
                    with log.open("a") as file:
                        file.write(line)
                    answer = words if how == "answer" else self.answer(line.strip())
                    if answer is None:
                        for left in ("control", "nvidia-cuda-mps-control.pid"):
                            Path(left).unlink()
                    lines.write("\0" if answer is None else answer + "\n\0")
                    lines.flush()
                if answer is None:
                    if self.server:
                        os.kill(self.server, signal.SIGKILL)
                    os._exit(0)


def pipe_folder() -> Path:
    """Where the daemon listens."""
    folder = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/nowhere"))
    if not folder.is_dir():
        fail(f"no pipe directory {folder}")
    return folder


def connect(folder: Path) -> socket.socket | None:
    """Reach the daemon, if one is there."""
    speaking = socket.socket(socket.AF_UNIX)
    try:
        # By its own folder: an address has room for 107 bytes only.
        os.chdir(folder)
        speaking.connect("control")
    except OSError:
        speaking.close()
        return None
    return speaking


def become_daemon(options: set[str]) -> None:
    """Start, or say why not."""
    folder, log = pipe_folder(), Path(os.environ.get("CUDA_MPS_LOG_DIRECTORY", "/nowhere"))
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if not log.is_dir():
        fail(f"no log directory {log}")
    if not re.fullmatch(r"GPU-[0-9a-f-]+", gpu):
        fail(f"{gpu!r} is not one GPU by its uuid")
    if Path(f"{MODES}{gpu}").read_text().strip() != "3":
        fail(f"{gpu} takes more than one process")
    if connect(folder):
        fail("An instance of this daemon is already running")
    if (folder / "control").exists():
        fail("the control pipe of another daemon is in the way")
    listening = socket.socket(socket.AF_UNIX)
    os.chdir(folder)
    listening.bind("control")
    listening.listen(64)
    if "-d" in options and os.fork():
        os._exit(0)
    if "-d" in options:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for each in (0, 1, 2):
            os.dup2(nothing, each)
    (folder / "nvidia-cuda-mps-control.pid").write_text(str(os.getpid()))
    Daemon(many="-multiuser-server" in options).serve(listening, log / "commands")


def speak() -> None:
    """Hand commands on, and print the answers."""
    speaking = connect(pipe_folder())
    if speaking is None:
        fail("Cannot find MPS control daemon process")
        return
    with speaking, speaking.makefile("rw", newline="\n") as lines:
        for line in sys.stdin:
            lines.write(line.strip() + "\n")
            lines.flush()
            said = ""
            while not said.endswith("\0"):
                more = speaking.recv(1000).decode()
                if not more:
                    fail("the daemon is gone")
                said += more
            sys.stdout.write(said.rstrip("\0"))


if __name__ == "__main__":
    options = set(sys.argv[1:])
    if options - OPTIONS or {"-d", "-f"} <= options:
        fail(f"invalid options {sorted(options)}")
    if options & {"-d", "-f"}:
        become_daemon(options)
    elif options:
        fail("a server for many users is the daemon's to choose")
    else:
        speak()
