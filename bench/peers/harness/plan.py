"""What is measured: sizes, groups, variants, and the shape of a peer."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from .wire import Wire

HERE = Path(__file__).resolve().parent.parent
"""The folder of this comparison."""
REPOSITORY = HERE.parent.parent

SIZES = [8, 64, 512, 4 << 10, 8 << 10, 64 << 10, 1 << 20, 4 << 20]
QUICK_SIZES = [8, 64, 8 << 10, 64 << 10, 1 << 20]
VETH_SIZES = [64, 8 << 10, 64 << 10, 1 << 20]
"""Across a veth pair, where a message of 8 B costs what one of 64 B does."""

COPIED, ONE_COPY, HANDED_OVER = "copied", "one-copy", "handed-over"
GROUPS = {
    COPIED: (
        "Copied in and out",
        "from private memory of the sender to private memory of the receiver",
    ),
    ONE_COPY: (
        "One copy",
        "from private memory of the sender into memory that the receiver can read; the receiver leaves it there",
    ),
    HANDED_OVER: (
        "Hand-over only",
        "a shared buffer changes hands; nobody touches its bytes",
    ),
}
"""Like is compared with like: a row belongs to one group, in this order."""

METRICS = {
    "p50_ns": ("latency p50", False),
    "p99_ns": ("latency p99", False),
    "msgs_per_s": ("message rate", True),
    "bytes_per_s": ("bandwidth", True),
}
"""What a cell can hold: its name for people, and whether more is better."""


class Missing(Exception):
    """A peer cannot run here.

    Its text says why; `remedy` says what to do about it.
    """

    def __init__(self, reason: str, remedy: str):
        super().__init__(reason)
        self.remedy = remedy


class Failed(Exception):
    """A measurement was started and did not end well. Its text says how."""


@dataclass(frozen=True)
class Variant:
    """One row of the tables: a peer used in one way."""

    label: str
    group: str
    use: str
    """How the peer is used, in the words that its `measure` understands."""
    note: str = ""
    noticed: bool = True
    """False if the receiver of a stream is not told of each message: such rates are shown, not compared."""


@dataclass
class Settings:
    """What holds for the whole run."""

    cores: tuple[int, int]
    cell_ms: int
    sizes: list[int]
    target: Path
    """The folder for everything that is downloaded or built; never committed."""
    cutthrough: Path
    wire: "Wire | None" = None
    """The veth pair between the two ends; without one they share memory."""


class Peer(Protocol):
    """One system under measurement."""

    name: str
    version: str
    how: str
    """How it is configured, for the reader of the table."""

    @property
    def variants(self) -> Sequence[Variant]:
        """Its rows, in the order of measuring."""

    def prepare(self, settings: Settings) -> None:
        """Finds or builds what is needed and learns the version; raises Missing if it cannot."""

    def measure(self, variant: Variant, settings: Settings) -> list[dict]:
        """Measures one variant at every size; raises Failed.

        Each dictionary has `size` and some of METRICS; together they cover all.
        """


@dataclass
class Results:
    """Everything that was learnt in one run."""

    machine: dict
    peers: list[Peer] = field(default_factory=list)
    missing: list[dict] = field(default_factory=list)
    failures: list[dict] = field(default_factory=list)
    probes: list[dict] = field(default_factory=list)
    cells: list[dict] = field(default_factory=list)
