"""Cutthrough itself, through `cutthrough perf`."""

from .plan import COPIED, HANDED_OVER, ONE_COPY, Missing, Settings, Variant
from .process import build, json_lines, single

TESTS = {"lat": ("p50_ns", "p99_ns"), "rate": ("msgs_per_s",), "bw": ("bytes_per_s",)}
"""The tests of `perf`, and what is taken from the lines of each."""

CONTROL_BYTES = 96
"""What a control message holds: a payload of no more needs no page to get there with one copy."""


class Cutthrough:
    """The program of this repository over shared memory, default settings."""

    name = "Cutthrough"
    version = ""
    how = (
        "cutthrough perf lat, rate and bw with --memory private, pool or reference; default settings; up to 96 B, "
        "private or with one copy, a control message"
    )
    variants: tuple[Variant, ...] = (
        Variant("private", COPIED, "private"),
        Variant("control message, pool", ONE_COPY, "pool", "up to 96 B a control message, which is copied out, too"),
        Variant("reference", HANDED_OVER, "reference"),
    )

    def prepare(self, settings: Settings) -> None:
        """See Peer."""
        remedy = "cargo build --release, or name the program with --cutthrough PATH"
        if not settings.cutthrough.is_file():
            raise Missing("not built", remedy)
        version = build([str(settings.cutthrough), "--version"], "cutthrough --version", remedy)
        self.version = version.split()[-1]

    def measure(self, variant: Variant, settings: Settings) -> list[dict]:
        """See Peer."""
        short = [size for size in settings.sizes if size <= CONTROL_BYTES and variant.use == "pool"]
        kinds = {"private": short, variant.use: [size for size in settings.sizes if size not in short]}
        cells = []
        for memory, sizes in ((memory, sizes) for memory, sizes in kinds.items() if sizes):
            for test, wanted in TESTS.items():
                words = [test, "--memory", memory, "--seconds", str(settings.cell_ms / 1000)]
                lines = self.perf([*words, "--size", ",".join(map(str, sizes))], settings)
                for line in (line for line in lines if line.get("test") == test):
                    taken = {metric: line[metric] for metric in wanted if metric in line}
                    cells.append({"size": line["size"], **taken})
        return cells

    def perf(self, words: list[str], settings: Settings) -> list[dict]:
        """What a test of `perf` says in JSON; raises Failed."""
        first, second = settings.cores
        command = ["taskset", "-c", f"{first},{second}", str(settings.cutthrough), "perf", *words, "--json"]
        return json_lines(single([*command, *self.carried(settings)], f"cutthrough perf {words[0]}"))

    def carried(self, _settings: Settings) -> list[str]:
        """What `perf` is told about the way between the two ends."""
        return []


class VethCutthrough(Cutthrough):
    """The same across a veth pair, which `perf` makes itself."""

    how = (
        "cutthrough perf lat, rate and bw with --veth MTU --adapter udp --memory private; its own two namespaces, not "
        "those of the others; messages are neither encrypted nor signed, as with the others"
    )
    variants = (Variant("UDP", COPIED, "private"),)

    def carried(self, settings: Settings) -> list[str]:
        """See Cutthrough."""
        return ["--adapter", "udp", *(["--veth", str(settings.wire.mtu)] if settings.wire is not None else [])]
