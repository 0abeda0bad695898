"""gRPC across a veth pair, through the Rust program in `../grpc`."""

from .plan import COPIED, Failed, Settings, Variant
from .process import build_crate, json_lines, pair, with_bandwidth

PORT = "7301"
"""Nobody else listens in the namespaces."""


class Grpc:
    """tonic, one thread at each end."""

    name = "gRPC (tonic)"
    version = ""
    how = (
        "own program (grpc/), unary calls that return the same bytes, no protocol buffers; the stream is one "
        "client-streaming call; tokio's current-thread runtime, kept from waiting; everything else as tonic chooses"
    )
    variants = (Variant("unary", COPIED, "unary", "latency of unary calls; the stream is one client-streaming call"),)

    def prepare(self, settings: Settings) -> None:
        """See Peer."""
        self.program, self.version = build_crate("grpc", "tonic", settings)

    def measure(self, _variant: Variant, settings: Settings) -> list[dict]:
        """See Peer."""
        if settings.wire is None:
            raise Failed("there is no veth pair")
        address = f"{settings.wire.server_address}:{PORT}"
        client = [self.program, "client", address, str(settings.cell_ms), *map(str, settings.sizes)]
        return with_bandwidth(json_lines(pair([self.program, "server", address], client, settings)))
