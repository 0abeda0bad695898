"""The cells of a run, seen as medians over rounds and as ratios between rows."""

from statistics import median

from .cutthrough import Cutthrough
from .plan import HANDED_OVER, METRICS, Results, Variant

Row = tuple[str, Variant]
"""A peer's name and one of its variants."""

STREAMS = ("msgs_per_s", "bytes_per_s")
"""The metrics of a stream."""


def metrics_of(group: str) -> list[str]:
    """What is compared in a group: bytes that nobody touches have no bandwidth."""
    return [metric for metric in METRICS if group != HANDED_OVER or metric != "bytes_per_s"]


def label(row: Row) -> str:
    """A row's name."""
    return f"{row[0]}, {row[1].label}"


class Medians:
    """What every row reached."""

    def __init__(self, results: Results):
        self._by_round: dict[tuple, dict[int, float]] = {}
        for cell in results.cells:
            for metric in METRICS:
                key = (cell["peer"], cell["variant"], cell["size"], metric)
                self._by_round.setdefault(key, {})[cell["round"]] = cell[metric]
        measured = {key[:2] for key in self._by_round}
        self._rows = [
            (peer.name, variant)
            for peer in results.peers
            for variant in peer.variants
            if (peer.name, variant.label) in measured
        ]

    def rows(self, group: str) -> list[Row]:
        """The rows of a group that were measured at least once, in the order of the run."""
        return [row for row in self._rows if row[1].group == group]

    def own(self, group: str) -> Row | None:
        """Cutthrough's row of a group, if it was measured."""
        return next((row for row in self.rows(group) if row[0] == Cutthrough.name), None)

    def compared(self, group: str, metric: str) -> list[Row]:
        """The rows of a group that are alike in a metric: a stream that nobody is told of is not."""
        return [row for row in self.rows(group) if row[1].noticed or metric not in STREAMS]

    def rounds(self, row: Row, size: int, metric: str) -> dict[int, float]:
        """What a row reached, by round."""
        return self._by_round[row[0], row[1].label, size, metric]

    def middle(self, row: Row, size: int, metric: str) -> float:
        """The median over rounds."""
        return median(self.rounds(row, size, metric).values())

    def best(self, group: str, size: int, metric: str) -> float | None:
        """The best median of a group; None if no row is compared."""
        choose = max if METRICS[metric][1] else min
        return choose((self.middle(row, size, metric) for row in self.compared(group, metric)), default=None)

    def ratio(self, own: Row, other: Row, size: int, metric: str) -> float | None:
        """How many times better `own` is: the median of the rounds that have both, or None."""
        ours, theirs = self.rounds(own, size, metric), self.rounds(other, size, metric)
        shared = ours.keys() & theirs.keys()
        if not shared:
            return None
        more_is_better = METRICS[metric][1]
        return median(ours[n] / theirs[n] if more_is_better else theirs[n] / ours[n] for n in shared)

    def hardest(self, own: Row, size: int, metric: str) -> tuple[float, Row] | None:
        """The peer against which `own` does worst, with the ratio; None if no peer can be compared."""
        ratios = []
        for row in self.compared(own[1].group, metric):
            ratio = self.ratio(own, row, size, metric)
            if row[0] != own[0] and ratio is not None:
                ratios.append((ratio, row))
        return min(ratios, key=lambda pair: pair[0], default=None)
