"""gRPC, through the Rust program in `../grpc`."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from .plan import COPIED, Settings, Variant
from .process import build_crate, free_port, json_lines, pair, with_bandwidth

PORT = "7301"
"""Nobody else listens in the namespaces."""


@contextmanager
def address(way: str, settings: Settings) -> Iterator[str]:
    """Where a server listens: a Unix socket in a folder of its own, or TCP, across the wire if there is one."""
    if way == "unix":
        with tempfile.TemporaryDirectory(prefix="peers-grpc-") as folder:
            yield f"unix:{folder}/socket"
    elif settings.wire is not None:
        yield f"{settings.wire.server_address}:{PORT}"
    else:
        yield f"127.0.0.1:{free_port()}"


class Grpc:
    """tonic, one thread at each end."""

    name = "gRPC (tonic)"
    version = ""
    how = (
        "own program (grpc/), unary calls that return the same bytes, no protocol buffers; the stream is one "
        "client-streaming call; tokio's current-thread runtime, kept from waiting; everything else as tonic chooses"
    )
    variants: tuple[Variant, ...] = (
        Variant("unary", COPIED, "stream:tcp", "latency of unary calls; the stream is one client-streaming call"),
    )

    def prepare(self, settings: Settings) -> None:
        """See Peer."""
        self.program, self.version = build_crate("grpc", "tonic", settings)

    def measure(self, variant: Variant, settings: Settings) -> list[dict]:
        """See Peer."""
        rate, way = variant.use.split(":")
        with address(way, settings) as where:
            client = [self.program, rate, "client", where, str(settings.cell_ms), *map(str, settings.sizes)]
            return with_bandwidth(json_lines(pair([self.program, rate, "server", where], client, settings)))
