"""The measurement itself: every peer in turn, round after round."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from . import machine
from .aeron import Aeron
from .cutthrough import Cutthrough, VethCutthrough
from .grpc import Grpc
from .iceoryx2 import Iceoryx2
from .openmpi import OpenMpi, VethOpenMpi
from .plan import METRICS, Failed, Missing, Peer, Results, Settings
from .sockets import Tcp, ZeroMq
from .ucx import DebianUcx, PypiUcx

PEERS: dict[str, Callable[[], Peer]] = {
    "cutthrough": Cutthrough,
    "ucx": DebianUcx,
    "ucx-pypi": PypiUcx,
    "openmpi": OpenMpi,
    "iceoryx2": Iceoryx2,
    "aeron": Aeron,
}
"""Everything that can be measured over shared memory, by the word that `--only` takes."""

VETH_PEERS: dict[str, Callable[[], Peer]] = {
    "cutthrough": VethCutthrough,
    "tcp": Tcp,
    "ucx": partial(DebianUcx, tcp=True),
    "ucx-pypi": partial(PypiUcx, tcp=True),
    "zeromq": ZeroMq,
    "openmpi": VethOpenMpi,
    "grpc": Grpc,
}
"""The same across a veth pair."""

DEBIAN_PACKAGES = [
    *["ucx-utils", "openmpi-bin", "libopenmpi-dev", "gcc", "libc6-dev"],
    *["default-jdk-headless", "maven", "python3-pip", "util-linux"],
]
VETH_PACKAGES = [
    *["ucx-utils", "openmpi-bin", "libopenmpi-dev", "libzmq3-dev", "gcc", "libc6-dev"],
    *["iproute2", "python3-pip", "util-linux"],
]


Check = Callable[[list[dict], Settings], list[dict]]
"""Merges the cells of a variant; raises Failed if one lacks something."""


def say(text: str) -> None:
    """Tells the person who waits."""
    print(text, file=sys.stderr, flush=True)


def install(packages: Iterable[str]) -> None:
    """Installs what Debian packages; needs root."""
    subprocess.run(["apt-get", "install", "--yes", "--no-install-recommends", *packages], check=True)


def prepare(peers: Iterable[Peer], settings: Settings, results: Results) -> None:
    """Makes every wanted peer ready; one that cannot be is noted with its reason."""
    for peer in peers:
        say(f"preparing {peer.name}")
        try:
            peer.prepare(settings)
        except Missing as missing:
            say(f"{peer.name.lower()}: {missing}; {missing.remedy}")
            results.missing.append({"peer": peer.name, "reason": str(missing), "remedy": missing.remedy})
        else:
            results.peers.append(peer)


def measure_round(number: int, settings: Settings, probe: str | None, results: Results, check: Check) -> None:
    """Every variant of every peer once."""
    start = time.monotonic()
    look = machine.probe(probe, settings) if probe is not None else {}
    others = machine.Others(settings)
    for peer in results.peers:
        for variant in peer.variants:
            where = {"round": number, "peer": peer.name, "variant": variant.label}
            try:
                others_here = machine.Others(settings)
                cells = check(peer.measure(variant, settings), settings)
            except Failed as failed:
                say(f"{peer.name}, {variant.label}: {failed}")
                results.failures.append({**where, "reason": str(failed)})
                continue
            share = {"others_percent": round(others_here.percent(), 1)}
            results.cells += [{**where, "group": variant.group, **cell, **share} for cell in cells]
    results.probes.append({"round": number, **look, "others_percent": round(others.percent(), 1)})
    say(f"round {number}: {time.monotonic() - start:.0f} s")


def complete(cells: list[dict], settings: Settings, metrics: Mapping[str, tuple[str, bool]] = METRICS) -> list[dict]:
    """One cell for every size with every metric; raises Failed if one was not measured."""
    merged: dict[int, dict] = {size: {"size": size} for size in settings.sizes}
    for cell in cells:
        merged[cell["size"]].update(cell)
    for cell in merged.values():
        absent = [name for metric, (name, _) in metrics.items() if metric not in cell]
        if absent:
            raise Failed(f"no {absent[0]} at {cell['size']} B")
    return list(merged.values())


def run(words: Iterable[str], rounds: int, settings: Settings) -> Results:
    """The whole comparison."""
    known = VETH_PEERS if settings.wire is not None else PEERS
    return run_peers([known[word]() for word in words], rounds, settings, complete)


def run_peers(peers: Iterable[Peer], rounds: int, settings: Settings, check: Check) -> Results:
    """A comparison of these peers."""
    settings.target.mkdir(parents=True, exist_ok=True)
    results = Results(machine.describe(settings))
    prepare(peers, settings, results)
    probe = machine.build_probe(settings)
    for number in range(1, rounds + 1):
        measure_round(number, settings, probe, results, check)
    return results
