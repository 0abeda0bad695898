"""The results as a page of Markdown and as JSON lines."""

import json
from collections.abc import Iterator

from .medians import STREAMS, Medians, Row, label, metrics_of
from .plan import GROUPS, METRICS, Results, Settings

SCALES = {"msgs_per_s": ("Million messages per second", 1e6), "bytes_per_s": ("GB/s", 1e9)}
"""How the metrics of a stream are printed."""

QUIET_PERCENT = 3
"""What other processes may take of the two cores before the reader is warned."""


def size_name(size: int) -> str:
    """8 B, 64 KiB, 1 MiB."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def short(value: float) -> str:
    """A few significant digits, never an exponent."""
    for least, digits in ((100, 0), (10, 1), (0.1, 2)):
        if value >= least:
            return f"{value:.{digits}f}"
    return f"{value:.4f}"


def table(heads: list[str], rows: list[list[str]]) -> list[str]:
    """A Markdown table; the first column is text, the others are numbers."""
    rule = ["---"] + ["---:"] * (len(heads) - 1)
    return ["| " + " | ".join(row) + " |" for row in (heads, rule, *rows)] + [""]


def markdown(results: Results, settings: Settings, rounds: int) -> str:
    """The whole page."""
    medians = Medians(results)
    lines = [*head(results, settings, rounds), *absent(results), *verdict(medians, settings)]
    for group in GROUPS:
        lines += group_tables(medians, group, settings)
    lines += [*configurations(results), *quietness(results.probes)]
    return "\n".join(lines).rstrip() + "\n"


def head(results: Results, settings: Settings, rounds: int) -> Iterator[str]:
    """Machine, date and method."""
    first, second = results.machine["pinned_to"]
    yield f"# Cutthrough and its peers on one machine{across(results.machine)}\n"
    yield about(results.machine)
    yield (
        f"Two processes that poll, on cores {first} and {second}. The figures are {times(rounds)}; a round runs every "
        f"row in turn, {settings.cell_ms} ms a figure. Latency is half a round trip. **Bold** is the best of a "
        "column.\n"
    )
    yield from disturbed(results.probes)


def about(machine: dict) -> str:
    """The machine and the date in a line."""
    return (
        f"{machine['date']}; {machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}, "
        f"{machine['system']}; revision {machine['revision']}.\n"
    )


def across(machine: dict) -> str:
    """The end of a title: the wire, if there is one."""
    return f" across a veth pair of MTU {machine['veth_mtu']}" if "veth_mtu" in machine else ""


def times(rounds: int) -> str:
    """What the figures of a table are."""
    return "one round" if rounds == 1 else f"the medians of {rounds} rounds"


def disturbed(probes: list[dict]) -> Iterator[str]:
    """A warning, if other processes took too much."""
    others = max((probe["others_percent"] for probe in probes), default=0)
    if others > QUIET_PERCENT:
        yield (
            f"**Disturbed: other processes took up to {others:.0f} % of the two cores during a round. Do not quote "
            "these figures; repeat the run on an idle machine.**\n"
        )


def absent(results: Results) -> Iterator[str]:
    """What was not measured, and why."""
    if not results.missing and not results.failures:
        return
    yield "## Not measured\n"
    for missing in results.missing:
        yield f"- **{missing['peer']}: {missing['reason']}.** To measure it: {missing['remedy']}."
    for failure in results.failures:
        yield f"- **{failure['peer']}, {failure['variant']}**, round {failure['round']}: {failure['reason']}."
    yield ""


def verdict(medians: Medians, settings: Settings) -> Iterator[str]:
    """Cutthrough against the best peer of each cell."""
    rows = []
    for group, (title, _) in GROUPS.items():
        own = medians.own(group)
        if own is None:
            continue
        for metric in metrics_of(group):
            cells = [verdict_cell(medians, own, size, metric) for size in settings.sizes]
            rows.append([f"{title}, {METRICS[metric][0]}", *cells])
    if not rows:
        return
    yield "## Cutthrough against the best peer\n"
    yield (
        "How many times better Cutthrough is than the best peer of the same group: the ratio within a round, its "
        "median over rounds, and of all peers the lowest. Below 1 the peer is ahead, and named.\n"
    )
    yield from table(["", *map(size_name, settings.sizes)], rows)


def verdict_cell(medians: Medians, own: Row, size: int, metric: str) -> str:
    """The lowest ratio, and whose it is where that peer is ahead."""
    hardest = medians.hardest(own, size, metric)
    if hardest is None:
        return "no peer"
    ratio, row = hardest
    return short(ratio) if ratio >= 1 else f"**{short(ratio)}** {label(row)}"


def group_tables(medians: Medians, group: str, settings: Settings) -> Iterator[str]:
    """The tables of a group and the notes of its rows."""
    rows = medians.rows(group)
    if not rows:
        return
    title, meaning = GROUPS[group]
    heads = ["", *map(size_name, settings.sizes)]
    yield f"## {title}\n"
    yield f"{meaning[0].upper()}{meaning[1:]}.\n"
    yield "Latency, microseconds, p50 / p99:\n"
    yield from table(heads, [[label(row), *latencies(medians, row, settings)] for row in rows])
    for metric in metrics_of(group):
        if metric in STREAMS:
            yield f"{SCALES[metric][0]}:\n"
            yield from table(heads, [[label(row), *streams(medians, row, metric, settings)] for row in rows])
    for row in rows:
        if row[1].note:
            yield f"- {label(row)}: {row[1].note}."
    if not all(row[1].noticed for row in rows):
        yield "- \\* the receiver is not told of each message of the stream: shown, not compared."
    yield ""


def latencies(medians: Medians, row: Row, settings: Settings) -> Iterator[str]:
    """One row of the latency table."""
    for size in settings.sizes:
        p50, p99 = (medians.middle(row, size, metric) for metric in ("p50_ns", "p99_ns"))
        bold = "**" if p50 == medians.best(row[1].group, size, "p50_ns") else ""
        yield f"{bold}{short(p50 / 1000)}{bold} / {short(p99 / 1000)}"


def streams(medians: Medians, row: Row, metric: str, settings: Settings) -> Iterator[str]:
    """One row of a table of rates."""
    for size in settings.sizes:
        value = medians.middle(row, size, metric)
        text = short(value / SCALES[metric][1])
        if not row[1].noticed:
            yield f"{text}\\*"
        else:
            yield f"**{text}**" if value == medians.best(row[1].group, size, metric) else text


def configurations(results: Results) -> Iterator[str]:
    """Versions, and how each was used."""
    yield "## Versions and configurations\n"
    for peer in results.peers:
        yield f"- **{peer.name} {peer.version}**: {peer.how}."
    yield ""


def quietness(probes: list[dict]) -> Iterator[str]:
    """The machine itself in each round."""
    heads = {
        "round": "round",
        "cacheline_ns": "8 B between the cores, ns",
        "clock_ns": "one clock read, ns",
        "copy_gb_s": "copy of 1 MiB, GB/s",
        "lost_percent": "core lost before the round, %",
        "others_percent": "both cores lost to other processes in the round, %",
    }
    yield "## The machine during the run\n"
    yield from table(list(heads.values()), [[str(probe.get(name, "-")) for name in heads] for probe in probes])


def json_lines(results: Results, rounds: int) -> Iterator[str]:
    """Everything measured, one object a line; `record` says what it is."""
    yield json.dumps({"record": "machine", "rounds": rounds, **results.machine})
    for peer in results.peers:
        yield json.dumps({"record": "peer", "peer": peer.name, "version": peer.version, "how": peer.how})
    for record, entries in (
        ("missing", results.missing),
        ("failure", results.failures),
        ("probe", results.probes),
        ("cell", results.cells),
    ):
        for entry in entries:
            yield json.dumps({"record": record, **entry})
