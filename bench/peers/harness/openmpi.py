"""Open MPI, through `../openmpi/peer.c`."""

import os
import re

from .plan import COPIED, HERE, ONE_COPY, Settings, Variant
from .process import build, json_lines, need, placed, single, with_bandwidth
from .wire import DEVICE

REMEDY = "apt-get install openmpi-bin libopenmpi-dev gcc"
CMA_NOTE = "large messages by a system call, a single copy by the kernel"
NO_CMA = ["--mca", "btl_vader_single_copy_mechanism", "none"]


class OpenMpi:
    """The distribution's Open MPI over shared memory."""

    name = "Open MPI"
    version = ""
    how = (
        "own ping-pong and stream (openmpi/peer.c, windows of 64), --mca pml ob1 --mca btl self,vader; with CMA (its "
        "default where the kernel allows it) and without; MPI_Put into a window from MPI_Win_allocate, then a flag"
    )
    variants: tuple[Variant, ...] = (
        Variant("send/recv, CMA", COPIED, "sendrecv:cma", CMA_NOTE),
        Variant("send/recv, no CMA", COPIED, "sendrecv:"),
        Variant("MPI_Put", ONE_COPY, "put:", "the receiver watches a flag put behind the message", noticed=False),
    )

    def prepare(self, settings: Settings) -> None:
        """See Peer."""
        mpirun = need("mpirun", REMEDY)
        compiler = need("mpicc", REMEDY)
        matched = re.search(r"\(Open MPI\) ([\d.]+)", build([mpirun, "--version"], "mpirun --version", REMEDY))
        self.version = matched[1] if matched else "unknown"
        self.program = str(settings.target / "openmpi-peer")
        build([compiler, "-O2", "-o", self.program, str(HERE / "openmpi/peer.c")], "mpicc", REMEDY)

    def measure(self, variant: Variant, settings: Settings) -> list[dict]:
        """See Peer."""
        use, mechanism = variant.use.split(":")
        peer = [self.program, use, str(settings.cell_ms), *map(str, settings.sizes)]
        ranks = [["-np", "1", *placed(end, peer, settings)] for end in (0, 1)]
        command = [*self.mpirun(mechanism, settings), *ranks[0], ":", *ranks[1]]
        return with_bandwidth(json_lines(single(command, "mpirun")))

    def mpirun(self, mechanism: str, _settings: Settings) -> list[str]:
        """The command before the ranks."""
        command = common("self,vader")
        if mechanism != "cma":
            command += NO_CMA
        return command


def common(transfer_layers: str) -> list[str]:
    """What every mpirun is told."""
    command = ["mpirun", "--bind-to", "none", "--mca", "pml", "ob1", "--mca", "btl", transfer_layers]
    if os.geteuid() == 0:
        command.append("--allow-run-as-root")
    return command


class VethOpenMpi(OpenMpi):
    """The same over TCP; mpirun lives at the server's end, and the other rank finds it across the wire."""

    how = (
        f"own ping-pong and stream (openmpi/peer.c, windows of 64), --mca pml ob1 --mca btl self,tcp --mca "
        f"btl_tcp_if_include {DEVICE}; each rank in its namespace"
    )
    variants = (Variant("send/recv, TCP", COPIED, "sendrecv:"),)

    def mpirun(self, _mechanism: str, settings: Settings) -> list[str]:
        """See OpenMpi. PMIx, by which ranks find mpirun, keeps to the loopback device if it is not told otherwise."""
        found = ["env", f"PMIX_MCA_ptl_base_if_include={DEVICE}", "PMIX_MCA_ptl_base_remote_connections=1"]
        command = [*found, *common("self,tcp"), "--mca", "btl_tcp_if_include", DEVICE]
        return settings.wire.inside(0, command) if settings.wire is not None else command
