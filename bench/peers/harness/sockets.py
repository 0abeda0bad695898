"""The kernel's TCP and ZeroMQ across a veth pair, through the programs in `../wire`."""

import platform
import re
from pathlib import Path

from .plan import COPIED, HERE, Failed, Missing, Settings, Variant
from .process import build, json_lines, need, pair, with_bandwidth

PORT = "7300"
"""Nobody else listens in the namespaces."""


def compile_own(name: str, settings: Settings, remedy: str, *libraries: str) -> str:
    """Builds one program of `../wire` and returns its path; raises Missing."""
    folder = HERE / "wire"
    program = str(settings.target / f"wire-{name}")
    command = [need("gcc", remedy), "-O2", "-o", program, str(folder / "measure.c"), str(folder / f"{name}.c")]
    build([*command, *libraries], "gcc", remedy)
    return program


def measure_own(program: str, sizes: list[int], settings: Settings) -> list[dict]:
    """Runs both ends of one program; raises Failed."""
    if settings.wire is None:
        raise Failed("there is no veth pair")
    tail = [settings.wire.server_address, PORT, str(settings.cell_ms), *map(str, sizes)]
    return with_bandwidth(json_lines(pair([program, "server", *tail], [program, "client", *tail], settings)))


class Tcp:
    """A stream socket of the kernel, spinning."""

    name = "kernel TCP"
    version = ""
    how = (
        "own ping-pong and stream (wire/tcp.c), TCP_NODELAY, both ends spin with MSG_DONTWAIT, one send a message; the "
        "receiver of a stream takes up to 64 KiB, or one longer message, with a call"
    )
    variants = (Variant("spinning", COPIED, "spin"),)
    remedy = "apt-get install gcc libc6-dev"

    def prepare(self, settings: Settings) -> None:
        """See Peer."""
        self.version = platform.release()
        self.program = compile_own("tcp", settings, self.remedy)

    def measure(self, _variant: Variant, settings: Settings) -> list[dict]:
        """See Peer."""
        return measure_own(self.program, settings.sizes, settings)


class ZeroMq:
    """The distribution's libzmq."""

    name = "ZeroMQ"
    version = ""
    how = (
        "own ping-pong and stream (wire/zeromq.c), PAIR sockets over tcp, zmq_send and zmq_recv, one thread for input "
        "and output; receiving blocks; queues of 1000 messages as ZeroMQ makes them, at most 16 MiB"
    )
    variants = (Variant("PAIR", COPIED, "pair", "two threads on a core; waits in the kernel, does not poll"),)
    remedy = "apt-get install libzmq3-dev gcc"

    def prepare(self, settings: Settings) -> None:
        """See Peer."""
        header = self.header()
        numbers = re.findall(r"#define ZMQ_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header.read_text())
        self.version = ".".join(numbers)
        self.program = compile_own("zeromq", settings, self.remedy, "-lzmq")

    def header(self) -> Path:
        """Where the compiler finds zmq.h; raises Missing."""
        command = [need("gcc", self.remedy), "-E", "-x", "c", "-include", "zmq.h", "/dev/null"]
        try:
            text = build(command, "gcc", self.remedy)
        except Missing:
            raise Missing("the compiler finds no header `zmq.h`", self.remedy) from None
        return Path(re.findall(r'^# \d+ "([^"]*/zmq\.h)"', text, re.MULTILINE)[0])

    def measure(self, _variant: Variant, settings: Settings) -> list[dict]:
        """See Peer; every size has a pair of its own, whose queues fit."""
        return [cell for size in settings.sizes for cell in measure_own(self.program, [size], settings)]
