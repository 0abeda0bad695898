"""Open MPI, through `../openmpi/peer.c`."""

import os
import re

from .plan import COPIED, HERE, ONE_COPY, Settings, Variant
from .process import build, json_lines, need, pinned, single, with_bandwidth

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
    variants = (
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
        command = ["mpirun", "--bind-to", "none", "--mca", "pml", "ob1", "--mca", "btl", "self,vader"]
        if os.geteuid() == 0:
            command.append("--allow-run-as-root")
        if mechanism != "cma":
            command += NO_CMA
        ranks = [["-np", "1", *pinned(core, peer)] for core in settings.cores]
        return with_bandwidth(json_lines(single([*command, *ranks[0], ":", *ranks[1]], "mpirun")))
