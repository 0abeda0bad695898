"""UCX, through its own `ucx_perftest`: the packaged one of Debian, and the current one from PyPI."""

import os
import re
import shutil
import sys
import zipfile
from pathlib import Path

from .plan import COPIED, ONE_COPY, Missing, Settings, Variant
from .process import build, free_port, need, pair, with_bandwidth
from .wire import DEVICE

WHEEL = "libucx-cu12==1.22.0"
SETTLE_S = 0.3
"""ucx_perftest has no way to say that it listens."""
WIRE_SETTLE_S = 1.0
"""The same in a namespace, where it took longer than that on a busy machine."""

TESTS = {
    "tag": ("tag_lat", "tag_bw"),
    "am": ("ucp_am_lat", "ucp_am_bw"),
    "put": ("ucp_put_lat", "ucp_put_bw"),
    "call": ("ucp_am_lat", None),
}
"""The tests of latency and of a stream by the way of use."""


def shared_memory() -> list[Variant]:
    """The ways both versions are used; the part after the colon goes into UCX_TLS."""
    cma = "large messages by a system call (CMA), a single copy by the kernel"
    am = "one copy up to the rendezvous limit; above it UCX copies out as well"
    return [
        Variant("tag", COPIED, "tag:posix,self"),
        Variant("tag, CMA", COPIED, "tag:posix,cma,self", cma),
        Variant("active message", ONE_COPY, "am:posix,self", am),
        Variant("put", ONE_COPY, "put:posix,self", "the receiver watches the last byte", noticed=False),
    ]


def veth() -> list[Variant]:
    """The same for a veth pair: what goes from private memory to private memory."""
    return [Variant("tag, TCP", COPIED, "tag:tcp")]


def iterations(size: int, cell_ms: int, streaming: bool, wire: bool) -> int:
    """How many messages fill about one cell; the shares of size are near the slowest test on a slow machine."""
    message_ns = 200 + 0.1 * size if streaming else 800 + 0.3 * size
    if wire:
        message_ns = 1000 + 0.4 * size if streaming else 12000 + 0.8 * size
    return max(20, int(cell_ms * 1e6 / message_ns))


def batch(use: str, settings: Settings) -> str:
    """The lines of a batch file: for every size the median, the 99th percentile and the stream, if there is one."""
    latency, bandwidth = TESTS[use]
    wire = settings.wire is not None
    lines = []
    for size in settings.sizes:
        half = iterations(size, settings.cell_ms // 2, streaming=False, wire=wire)
        lines.append(f"p50_ns/{size} -t {latency} -s {size} -n {half} -w {half // 4 + 1} -R 50")
        lines.append(f"p99_ns/{size} -t {latency} -s {size} -n {half} -w {half // 4 + 1} -R 99")
        if bandwidth is None:
            continue
        whole = iterations(size, settings.cell_ms, streaming=True, wire=wire)
        lines.append(f"msgs_per_s/{size} -t {bandwidth} -s {size} -n {whole} -w {whole // 4 + 1}")
    return "\n".join(lines) + "\n"


def cells(text: str) -> list[dict]:
    """The cells in ucx_perftest's table: name, iterations, percentile us, two more latencies, bandwidths, rates."""
    found = []
    for line in text.splitlines():
        matched = re.fullmatch(r"(p50_ns|p99_ns|msgs_per_s)/(\d+),(.*)", line.strip())
        if matched is None:
            continue
        metric, size, numbers = matched[1], int(matched[2]), [float(n) for n in matched[3].split(",")]
        value = numbers[-1] if metric == "msgs_per_s" else numbers[1] * 1000
        found.append({"size": size, metric: value})
    return with_bandwidth(found)


class Ucx:
    """One version of UCX, over shared memory or over TCP."""

    def __init__(self, name: str, tcp: bool):
        self.name = name
        self.version = ""
        self.variants = veth() if tcp else shared_memory()
        transports = f"tcp, UCX_NET_DEVICES={DEVICE}" if tcp else "posix,self, or posix,cma,self where the row says CMA"
        self.how = (
            f"ucx_perftest in batch mode, UCX_TLS={transports}; everything else as UCX chooses; percentiles over its "
            "last 2048 samples"
        )
        self.program = ""
        self.env = {"UCX_WARN_UNUSED_ENV_VARS": "n"}

    def learn_version(self, info_program: str) -> None:
        """Asks ucx_info."""
        text = build([info_program, "-v"], "ucx_info", "see its message", self.env)
        matched = re.search(r"version:?\s+([\d.]+)", text, re.IGNORECASE)
        self.version = matched[1] if matched else "unknown"

    def measure(self, variant: Variant, settings: Settings) -> list[dict]:
        """See Peer."""
        use, transports = variant.use.split(":")
        listing = settings.target / f"ucx-batch-{use}-{os.getpid()}"
        listing.write_text(batch(use, settings))
        port = free_port()
        address = settings.wire.server_address if settings.wire is not None else "127.0.0.1"
        devices = {"UCX_NET_DEVICES": DEVICE} if settings.wire is not None else {}
        server = [self.program, "-b", str(listing), "-p", port]
        client = [self.program, address, "-b", str(listing), "-p", port, "-v", "-f"]
        try:
            env = {**self.env, **devices, "UCX_TLS": transports}
            text = pair(server, client, settings, env, WIRE_SETTLE_S if devices else SETTLE_S)
        finally:
            listing.unlink()
        return cells(text)


class DebianUcx(Ucx):
    """UCX as the distribution packages it."""

    remedy = "apt-get install ucx-utils"

    def __init__(self, tcp: bool = False) -> None:
        super().__init__("UCX (Debian)", tcp)

    def prepare(self, settings: Settings) -> None:
        """See Peer."""
        self.program = need("ucx_perftest", self.remedy)
        self.learn_version(need("ucx_info", self.remedy))


class PypiUcx(Ucx):
    """UCX as its project builds it for Python wheels, `ucx_perftest` included."""

    remedy = f"make `{sys.executable} -m pip download {WHEEL}` work"

    def __init__(self, tcp: bool = False) -> None:
        super().__init__("UCX (PyPI)", tcp)

    def prepare(self, settings: Settings) -> None:
        """See Peer."""
        folder = settings.target / "ucx"
        if not (folder / "libucx/bin/ucx_perftest").exists():
            self.unpack(folder)
        self.program = str(folder / "libucx/bin/ucx_perftest")
        self.env["LD_LIBRARY_PATH"] = str(folder / "libucx/lib")
        self.learn_version(str(folder / "libucx/bin/ucx_info"))

    def unpack(self, folder: Path) -> None:
        """Downloads the wheel and takes it apart; raises Missing."""
        partial = folder.with_suffix(".part")
        shutil.rmtree(partial, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(partial), WHEEL]
        build(pip, f"download of {WHEEL}", self.remedy)
        wheel = next(partial.glob("*.whl"), None)
        if wheel is None:
            raise Missing(f"no wheel of {WHEEL} fits this machine", "none; use the Debian package")
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(partial)
        wheel.unlink()
        for program in (partial / "libucx/bin").iterdir():
            program.chmod(0o755)
        partial.rename(folder)
