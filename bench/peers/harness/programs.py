"""The seven programs of Split-C, on Cutthrough (`splitc/examples`) and on Open MPI (`../openmpi/splitc`)."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from .openmpi import REMEDY, common
from .plan import HERE, REPOSITORY, Failed, Missing, Settings
from .process import build, last_line, need, pair, pinned, single

SOURCES = HERE / "openmpi/splitc"
OPTIMIZED = ["-O3"]
"""What the C compiler is told; cargo's release build has the same level, and neither is told the processor."""
LINE = re.compile(r": ([\d.]+) ms on 2 ranks, ([\d.]+) ms serial, [\d.]+ x, verified$", re.MULTILINE)


@dataclass(frozen=True)
class Program:
    """One of the seven."""

    label: str
    name: str
    words: tuple[str, ...]
    """Its arguments: how it sends, and the size."""
    quick: tuple[str, ...]
    """The same for a quick run."""


PROGRAMS = (
    Program("matrix multiply", "matmul", ("4", "128"), ("4", "64")),
    Program("sample sort, short messages", "sample_sort", ("small", "1048576"), ("small", "65536")),
    Program("sample sort, bulk", "sample_sort", ("bulk", "1048576"), ("bulk", "65536")),
    Program("radix sort, short messages", "radix_sort", ("small", "1048576"), ("small", "65536")),
    Program("radix sort, bulk", "radix_sort", ("bulk", "1048576"), ("bulk", "65536")),
    Program("connected components", "components", ("1024", "60"), ("256", "60")),
    Program("conjugate gradient", "gradient", ("512", "100"), ("256", "20")),
)


@dataclass(frozen=True)
class Times:
    """What a program says of itself, in milliseconds."""

    together: float
    serial: float


def times(text: str, what: str) -> Times:
    """From the last line of a program, which it prints only if its ranks came to what its serial run comes to."""
    matched = LINE.search(text)
    if matched is None:
        raise Failed(f"{what}: {last_line(text)}")
    return Times(float(matched[1]), float(matched[2]))


class Party(Protocol):
    """Something on which the programs run."""

    name: str
    how: str
    """How it is configured, for the reader of the table."""

    def prepare(self, settings: Settings) -> None:
        """Finds or builds the programs; raises Missing."""

    def run(self, program: Program, words: tuple[str, ...], settings: Settings) -> Times:
        """Two ranks, each on its core, rank 0 on the second; raises Failed."""


class SplitC:
    """The examples of the crate `cutthrough-splitc`, over shared memory."""

    name = "Cutthrough"
    how = "splitc/examples, over shared memory, default settings; cargo's release build"

    def __init__(self, built: Path | None):
        target = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
        self._folder = built or target / "release/examples"
        self._runs = 0

    def prepare(self, _settings: Settings) -> None:
        """See Party."""
        for program in PROGRAMS:
            if not (self._folder / program.name).is_file():
                remedy = "cargo build --release -p cutthrough-splitc --examples, or name their folder with --examples"
                raise Missing(f"no program {self._folder / program.name}", remedy)

    def run(self, program: Program, words: tuple[str, ...], settings: Settings) -> Times:
        """See Party."""
        self._runs += 1
        env = {"CUTTHROUGH_SIZE": "2", "CUTTHROUGH_JOB": f"peers-{os.getpid()}-{self._runs}"}
        command = [str(self._folder / program.name), *words]
        zero, one = (["env", f"CUTTHROUGH_RANK={rank}", *command] for rank in (0, 1))
        return times(pair(one, zero, settings, env), program.label)


class MpiPrograms:
    """The same programs by send and receive."""

    name = "Open MPI"
    how = (
        "openmpi/splitc, MPI_Send, Isend, Recv and Irecv, and MPI's own broadcast, reduce and scan where the Split-C "
        f"program uses those of splitc; --mca pml ob1 --mca btl self,vader, with CMA; {' '.join(OPTIMIZED)}"
    )

    def prepare(self, settings: Settings) -> None:
        """See Party."""
        need("mpirun", REMEDY)
        compiler = need("mpicc", REMEDY)
        rustc = need("rustc", "install Rust (https://rustup.rs)")
        self._folder = settings.target / "openmpi-splitc"
        self._folder.mkdir(parents=True, exist_ok=True)
        kernels = self._folder / "libkernels.a"
        command = [rustc, "-C", "opt-level=3", "--edition", "2024", "--crate-type", "staticlib"]
        build([*command, "-o", str(kernels), str(SOURCES / "kernels.rs")], "rustc", "install Rust (https://rustup.rs)")
        for name in {program.name for program in PROGRAMS}:
            files = [str(SOURCES / f"{name}.c"), str(SOURCES / "common.c"), str(kernels)]
            libraries = ["-lm", "-lpthread", "-ldl", "-lgcc_s"]
            build([compiler, *OPTIMIZED, "-o", str(self._folder / name), *files, *libraries], "mpicc", REMEDY)

    def run(self, program: Program, words: tuple[str, ...], settings: Settings) -> Times:
        """See Party."""
        command = [str(self._folder / program.name), *words]
        zero, one = (["-np", "1", *pinned(settings.cores[core], command)] for core in (1, 0))
        return times(single([*common("self,vader"), *zero, ":", *one], "mpirun"), program.label)
