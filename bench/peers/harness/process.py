"""Starting the processes of a peer: pinned, timed out, and ended whatever happens."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from .plan import HERE, Failed, Missing, Settings

PAIR_TIMEOUT_S = 90
"""Longest time for one variant at all sizes."""
ENDING_S = 3
"""How long a process that was asked to end may take."""
SERVER_GRACE_S = 10
"""How long a server may stay after its client has ended."""


def need(program: str, remedy: str) -> str:
    """The path of an installed program; raises Missing."""
    path = shutil.which(program)
    if path is None:
        raise Missing(f"no program `{program}` on this machine", remedy)
    return path


def build(command: list[str], what: str, remedy: str, env: dict | None = None, cwd: Path | None = None) -> str:
    """Runs a command that downloads or builds, and returns what it printed; raises Missing."""
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **(env or {})}, cwd=cwd, check=False
    )
    if done.returncode != 0:
        raise Missing(f"{what} failed: {last_line(done.stderr or done.stdout)}", remedy)
    return done.stdout


def build_crate(name: str, library: str, settings: Settings) -> tuple[str, str]:
    """Builds one of our Rust programs: its path, and the version of the library that it drives; raises Missing."""
    remedy = "install Rust (https://rustup.rs) and let cargo reach crates.io"
    project, target = HERE / name, settings.target / name
    command = [need("cargo", remedy), "build", "--release", "--locked", "--target-dir", str(target)]
    build(command, "cargo build", remedy, cwd=project)
    locked = (project / "Cargo.lock").read_text()
    matched = re.search(rf'name = "{library}"\nversion = "([^"]+)"', locked)
    return str(target / f"release/{name}-peer"), matched[1] if matched else "unknown"


def last_line(text: str) -> str:
    """The last line that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


def pinned(core: int, command: list[str]) -> list[str]:
    """The command on one core: the same way for every peer."""
    return ["taskset", "-c", str(core), *command]


def placed(end: int, command: list[str], settings: Settings) -> list[str]:
    """The command at one end, 0 the server's and 1 the client's: on its core, and in its namespace if there is one."""
    command = pinned(settings.cores[end], command)
    return settings.wire.inside(end, command) if settings.wire is not None else command


@contextmanager
def started(command: list[str], env: dict | None = None) -> Iterator[tuple[subprocess.Popen, IO[str]]]:
    """A process in a group of its own, which ends with the block."""
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
        try:
            yield process, output
        finally:
            end(process)


def end(process: subprocess.Popen) -> None:
    """Ends a process that we started, and its group; asks first, so that it can end its own children."""
    for ending in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        os.killpg(process.pid, ending)
        try:
            process.wait(timeout=ENDING_S)
        except subprocess.TimeoutExpired:
            continue


def finish(process: subprocess.Popen, output: IO[str], seconds: float, what: str) -> str:
    """Waits for a started process and returns what it printed; raises Failed."""
    try:
        code = process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise Failed(f"{what} did not end within {seconds:.0f} s") from None
    output.seek(0)
    text = output.read()
    if code != 0:
        raise Failed(f"{what} ended with {code}: {last_line(text)}")
    return text


def single(command: list[str], what: str) -> str:
    """Runs one process that starts the others itself, and returns what it printed; raises Failed."""
    with started(command) as (process, output):
        return finish(process, output, PAIR_TIMEOUT_S, what)


def pair(server: list[str], client: list[str], settings: Settings, env: dict | None = None, settle_s: float = 0) -> str:
    """Runs a server and a client, each placed at its end, and returns what the client printed.

    The client starts `settle_s` after the server; raises Failed.
    """
    with started(placed(0, server, settings), env) as (server_process, server_output):
        time.sleep(settle_s)
        with started(placed(1, client, settings), env) as (client_process, client_output):
            text = finish(client_process, client_output, PAIR_TIMEOUT_S, "the client")
        finish(server_process, server_output, SERVER_GRACE_S, "the server")
    return text


def free_port() -> str:
    """A TCP port of this machine that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def json_lines(text: str) -> list[dict]:
    """The JSON objects among the lines of a text."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def with_bandwidth(cells: list[dict]) -> list[dict]:
    """The cells of a peer that counts messages, with the bandwidth that follows."""
    for cell in cells:
        if "msgs_per_s" in cell:
            cell["bytes_per_s"] = cell["msgs_per_s"] * cell["size"]
    return cells
