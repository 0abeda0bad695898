"""Two network namespaces joined by a veth pair, for the time of a run.

The namespaces have no names: two processes hold them, which end when the pipe from this program breaks. So however this
program ends, the kernel takes namespaces, devices and addresses away; nothing is left to be cleaned up, and two runs
cannot collide. `/sys` is mounted anew in each, because that is where UCX looks for devices.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from .plan import Missing
from .process import last_line, need

ADDRESSES = ("10.73.0.1", "10.73.0.2")
"""Of the server's and of the client's end."""
DEVICE = "wire"
"""The name of both ends, each in its own namespace."""
UTIL_LINUX = ("unshare", "nsenter", "setpriv", "taskset")
PROGRAMS = {"ip": "iproute2", "mount": "mount", **dict.fromkeys(UTIL_LINUX, "util-linux")}
"""What this needs, and the packages that have it."""
HOLD = "mount -t sysfs sysfs /sys && echo held && exec cat"
"""What holds a namespace: says so, then reads until the pipe breaks."""


@dataclass(frozen=True)
class Wire:
    """The pair, while it exists."""

    mtu: int
    holders: tuple[int, int]
    """The processes that hold the two namespaces."""

    @property
    def server_address(self) -> str:
        """Where a server listens."""
        return ADDRESSES[0]

    def inside(self, end: int, command: list[str]) -> list[str]:
        """The command in the namespace of an end, 0 the server's and 1 the client's; it dies with its parent."""
        entering = ["nsenter", "--target", str(self.holders[end]), "--net", "--mount"]
        return ["setpriv", "--pdeathsig", "KILL", *entering, *command]


def check() -> None:
    """Raises Missing if a program or the right is not there."""
    for program, package in PROGRAMS.items():
        need(program, f"apt-get install {package}")
    if os.geteuid() != 0:
        raise Missing("--veth makes network namespaces, which only root may", "run it as root")


@contextmanager
def wire(mtu: int) -> Iterator[Wire]:
    """Makes the pair and takes it away; raises Missing."""
    check()
    with ExitStack() as ending:
        holders = [ending.enter_context(held()) for _ in ADDRESSES]
        made = Wire(mtu, (holders[0], holders[1]))
        end = f"name {DEVICE} mtu {mtu}"
        configure(made, 0, f"link add {end} type veth peer {end} netns {made.holders[1]}")
        for number, address in enumerate(ADDRESSES):
            configure(made, number, f"addr add {address}/30 dev {DEVICE}", "link set lo up", f"link set {DEVICE} up")
        yield made


@contextmanager
def held() -> Iterator[int]:
    """A process in namespaces of its own, and its id; raises Missing."""
    command = ["unshare", "--net", "--mount", "sh", "-c", HOLD]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as holder:
        assert holder.stdin and holder.stdout and holder.stderr
        if holder.stdout.readline() != "held\n":
            reason = last_line(holder.stderr.read())
            raise Missing(f"no network namespace can be made here ({reason})", "run it as root, outside of a container")
        yield holder.pid


def configure(wire: Wire, end: int, *commands: str) -> None:
    """Runs commands of `ip` at an end; raises Missing."""
    ip = wire.inside(end, ["ip", "-batch", "-"])
    done = subprocess.run(ip, input="\n".join(commands) + "\n", capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = done.stderr.splitlines()[0] if done.stderr else "it says nothing"
        right = "not permitted" in reason
        remedy = "run it with CAP_NET_ADMIN" if right else "use a kernel with CONFIG_VETH, or `modprobe veth`"
        raise Missing(f"`ip` cannot make the veth pair ({reason})", remedy)
