"""Calls, a request and its reply, of Cutthrough and its peers: who is measured how, and the table."""

from collections.abc import Callable, Iterator
from functools import partial
from statistics import median

from .cutthrough import Cutthrough, VethCutthrough
from .grpc import Grpc
from .medians import Row, label
from .openmpi import OpenMpi, VethOpenMpi
from .plan import Failed, Peer, Results, Settings, Variant
from .report import about, absent, across, configurations, disturbed, quietness, short, table, times
from .rounds import complete
from .ucx import DebianUcx, PypiUcx
from .wire import DEVICE

SIZE = 64
"""Bytes of a request, and of its reply."""
GROUP = "call"
METRICS = {"p50_ns": ("round trip p50", False), "p99_ns": ("round trip p99", False)}
"""What every row has, as in plan.METRICS; some have `calls_per_s` beside it."""
RATE = "calls_per_s"
RAW = "raw call"
"""The row of Cutthrough's that the others are held against."""
STEADY = 1.5
"""What 8 B between the cores may take in one round over another before the reader is warned."""
DEBIAN_PACKAGES = ["openmpi-bin", "libopenmpi-dev", "ucx-utils", "gcc", "libc6-dev", "python3-pip", "util-linux"]
VETH_PACKAGES = [*DEBIAN_PACKAGES, "iproute2"]

check = partial(complete, metrics=METRICS)
"""See rounds.Check."""


class Calls:
    """A peer of `run`, used for calls."""

    def __init__(self, peer: Peer, how: str, *variants: Variant):
        self._peer = peer
        self.name = peer.name
        self.version = ""
        self.how = how
        self.variants = variants

    def prepare(self, settings: Settings) -> None:
        """See Peer."""
        self._peer.prepare(settings)
        self.version = self._peer.version

    def measure(self, variant: Variant, settings: Settings) -> list[dict]:
        """See Peer; the peer reports half round trips."""
        return [whole(cell) for cell in self._peer.measure(variant, settings)]


class OwnCalls(Calls):
    """Cutthrough, whose tests of calls report whole round trips."""

    _peer: Cutthrough

    def measure(self, variant: Variant, settings: Settings) -> list[dict]:
        """See Peer. A rate is measured beside the row that the test of rates belongs to."""
        seconds = ["--seconds", str(2 * settings.cell_ms / 1000)]
        cells = []
        for words, metrics in OWN_TESTS[variant.use]:
            lines = self._peer.perf([*words, *seconds], settings)
            found = [line for line in lines if line.get("what") == words[1].replace("-", "_")]
            if not found:
                raise Failed(f"cutthrough perf {' '.join(words)} printed no such row")
            cells += [{"size": SIZE, ours: found[0][theirs]} for ours, theirs in metrics.items()]
        return cells


def row_of_rpc(row: str) -> tuple[list[str], dict[str, str]]:
    """A row of `perf rpc`: its words, and the fields of a cell by those of its JSON."""
    return ["rpc", row], {metric: metric for metric in METRICS}


OWN_TESTS = {
    "raw": [row_of_rpc("raw")],
    "typed": [row_of_rpc("typed")],
    "tokio": [row_of_rpc("tokio")],
    "am": [row_of_rpc("am-call"), (["am", "rate"], {RATE: "msgs_per_s"})],
}
"""Tests of `perf` by the way of use; half of their time goes to the raw messages that they are held against."""


def whole(cell: dict) -> dict:
    """Whole round trips from half ones; a stream of messages is no rate of calls."""
    kept = {metric: 2 * cell[metric] for metric in METRICS if metric in cell}
    return {"size": cell["size"], **kept, **({RATE: cell[RATE]} if RATE in cell else {})}


def own(peer: Cutthrough, more: str) -> Calls:
    """Cutthrough, over shared memory or over a wire."""
    how = "cutthrough perf rpc, its rows raw, typed, tokio and am-call, and cutthrough perf am, its row rate; "
    note = "requests and replies of four words (16 B) for the rate"
    return OwnCalls(
        peer,
        how + more,
        Variant(RAW, GROUP, "raw", "blocking, by a client that threads share"),
        Variant("typed call", GROUP, "typed", "blocking, serialized; a number comes back"),
        Variant("raw call, tokio", GROUP, "tokio", "a future in a runtime with one thread"),
        Variant("active message", GROUP, "am", f"by the one thread that has the node; {note}"),
    )


def ucx(peer: DebianUcx | PypiUcx, transports: str, more: str = "") -> Calls:
    """One version of UCX."""
    shape = f"ucx_perftest -t ucp_am_lat in batch mode, UCX_TLS={transports}{more}"
    how = f"{shape}; everything else as UCX chooses; percentiles over its last 2048 samples"
    note = "a message of 64 B there, and one back"
    return Calls(peer, how, Variant("active message", GROUP, f"call:{transports}", note))


def openmpi(peer: OpenMpi, transfer_layers: str) -> Calls:
    """Open MPI."""
    how = f"own ping-pong (openmpi/peer.c), --mca pml ob1 --mca btl {transfer_layers}"
    return Calls(peer, how, Variant("send/recv", GROUP, "sendrecv:", "a message of 64 B there, and one back"))


def grpc(**ways: str) -> Calls:
    """gRPC, by these ways and their labels."""
    how = (
        "own program (grpc/), unary calls that return the same bytes, no protocol buffers; tokio's current-thread "
        "runtime, kept from waiting for round trips; for the rate 64 tasks on one connection, and not kept from it; "
        "everything else as tonic chooses"
    )
    return Calls(Grpc(), how, *(Variant(f"unary, {text}", GROUP, f"calls:{way}") for way, text in ways.items()))


PEERS: dict[str, Callable[[], Peer]] = {
    "cutthrough": lambda: own(Cutthrough(), "default settings"),
    "ucx": lambda: ucx(DebianUcx(), "posix,self"),
    "ucx-pypi": lambda: ucx(PypiUcx(), "posix,self"),
    "openmpi": lambda: openmpi(OpenMpi(), "self,vader"),
    "grpc": lambda: grpc(unix="Unix socket", tcp="loopback TCP"),
}
"""Everything whose calls can be measured on one machine, by the word that `--only` takes."""

WIRE_DEVICE = f", UCX_NET_DEVICES={DEVICE}"
VETH_PEERS: dict[str, Callable[[], Peer]] = {
    "cutthrough": lambda: own(VethCutthrough(), "--veth MTU --adapter udp; its own two namespaces"),
    "ucx": lambda: ucx(DebianUcx(tcp=True), "tcp", WIRE_DEVICE),
    "ucx-pypi": lambda: ucx(PypiUcx(tcp=True), "tcp", WIRE_DEVICE),
    "openmpi": lambda: openmpi(VethOpenMpi(), f"self,tcp --mca btl_tcp_if_include {DEVICE}"),
    "grpc": lambda: grpc(tcp="TCP"),
}
"""The same across a veth pair."""


class Middles:
    """What every row reached, as medians over rounds."""

    def __init__(self, results: Results):
        self._cells = {(cell["peer"], cell["variant"], cell["round"]): cell for cell in results.cells}
        measured = {key[:2] for key in self._cells}
        rows = [(peer.name, variant) for peer in results.peers for variant in peer.variants]
        self.rows: list[Row] = [row for row in rows if (row[0], row[1].label) in measured]

    def _by_round(self, name: str, variant: str) -> dict[int, dict]:
        return {key[2]: cell for key, cell in self._cells.items() if key[:2] == (name, variant)}

    def middle(self, row: Row, metric: str) -> float | None:
        """The median over rounds; None where it is not measured."""
        values = [cell[metric] for cell in self._by_round(row[0], row[1].label).values() if metric in cell]
        return median(values) if values else None

    def ratio(self, row: Row) -> float | None:
        """How many times as long as Cutthrough's raw call: the median of the rounds that have both, or None."""
        ours, theirs = self._by_round(Cutthrough.name, RAW), self._by_round(row[0], row[1].label)
        ratios = [cell["p50_ns"] / ours[number]["p50_ns"] for number, cell in theirs.items() if number in ours]
        return median(ratios) if ratios else None


def markdown(results: Results, settings: Settings, rounds: int) -> str:
    """The whole page."""
    return "\n".join(page(results, settings, rounds)).rstrip() + "\n"


def page(results: Results, settings: Settings, rounds: int) -> Iterator[str]:
    """Its lines."""
    first, second = results.machine["pinned_to"]
    yield f"# Calls of Cutthrough and of its peers on one machine{across(results.machine)}\n"
    yield about(results.machine)
    yield (
        f"Two processes that poll, on cores {first} and {second}. The figures are {times(rounds)}; a round runs every "
        f"row in turn, {settings.cell_ms} ms a figure. A round trip is a request of {SIZE} B and a reply: from the "
        "call until the reply is there. UCX, Open MPI and gRPC are measured by programs that report half of it; the "
        "figures here are twice theirs. How many times as long as Cutthrough's raw call a call takes is a ratio of p50 "
        "within a round.\n"
    )
    yield from disturbed(results.probes)
    yield from moved(results.probes)
    yield from absent(results)
    middles = Middles(results)
    if middles.rows:
        heads = ["", "round trip, p50 / p99, us", "times Cutthrough's raw call", "million calls/s, 64 under way"]
        yield from table(heads, [line(middles, row) for row in middles.rows])
        notes = [f"- {label(row)}: {row[1].note}." for row in middles.rows if row[1].note]
        yield "\n".join([*notes, ""]) if notes else ""
    yield from configurations(results)
    yield from quietness(results.probes)


def moved(probes: list[dict]) -> Iterator[str]:
    """A warning, if the cores did not stay as near to each other as they were."""
    ways = [probe["cacheline_ns"] for probe in probes if "cacheline_ns" in probe]
    if ways and max(ways) > STEADY * min(ways):
        yield (
            f"**Unsteady: 8 B between the cores took {min(ways):.0f} ns in one round and {max(ways):.0f} ns in "
            "another, as on a virtual machine whose cores move. The medians mix both: compare ratios, or repeat the "
            "run.**\n"
        )


def line(middles: Middles, row: Row) -> list[str]:
    """A row of the table."""
    p50, p99 = (middles.middle(row, metric) for metric in METRICS)
    ratio, rate = middles.ratio(row), middles.middle(row, RATE)
    assert p50 is not None and p99 is not None
    return [
        label(row),
        f"{short(p50 / 1000)} / {short(p99 / 1000)}",
        "-" if ratio is None else short(ratio),
        "-" if rate is None else short(rate / 1e6),
    ]
