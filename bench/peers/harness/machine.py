"""What machine this is, and how fast and how quiet it is at the moment."""

import json
import os
import platform
import subprocess
import time
from datetime import datetime, timezone
from pathlib import Path

from .plan import HERE, Missing, Settings
from .process import build, need

GCC_REMEDY = "apt-get install gcc libc6-dev"


def cpu_model() -> str:
    """The processor as the kernel names it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def system_name() -> str:
    """The distribution."""
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()


def revision() -> str:
    """The commit of this repository, marked if files differ from it."""
    command = ["git", "-C", str(HERE), "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def describe(settings: Settings) -> dict:
    """The machine, for the head of the table."""
    wire = {"veth_mtu": settings.wire.mtu} if settings.wire is not None else {}
    return {
        **wire,
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "pinned_to": list(settings.cores),
        "kernel": platform.release(),
        "system": system_name(),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "revision": revision(),
    }


def build_probe(settings: Settings) -> str | None:
    """The program that measures the machine itself, or None where no compiler is."""
    program = str(settings.target / "probe")
    try:
        compiler = need("gcc", GCC_REMEDY)
        build([compiler, "-O2", "-pthread", "-o", program, str(HERE / "probe/probe.c")], "gcc", GCC_REMEDY)
    except Missing:
        return None
    return program


def probe(program: str, settings: Settings) -> dict:
    """One look at the machine: see probe.c for the names."""
    command = [program, *map(str, settings.cores)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    look: dict = json.loads(done.stdout)
    return look


class Others:
    """How much of the two cores went to processes that this program did not start."""

    def __init__(self, settings: Settings):
        self._cores = {f"cpu{core}" for core in settings.cores}
        self._start = (time.monotonic(), self._busy_s(), own_s())

    def _busy_s(self) -> float:
        """Seconds that the two cores worked for anybody, since boot; stolen time is not work."""
        ticks = 0
        for line in Path("/proc/stat").read_text().splitlines():
            name, *fields = line.split()
            if name in self._cores:
                user, nice, system, _idle, _waiting, irq, soft_irq = map(int, fields[:7])
                ticks += user + nice + system + irq + soft_irq
        return ticks / os.sysconf("SC_CLK_TCK")

    def percent(self) -> float:
        """The share since the beginning, in percent of both cores."""
        passed, busy, own = (
            now - then for now, then in zip((time.monotonic(), self._busy_s(), own_s()), self._start, strict=True)
        )
        return max(0.0, 100 * (busy - own) / (2 * passed))


def own_s() -> float:
    """Seconds that this process and its ended children worked."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
