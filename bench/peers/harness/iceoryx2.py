"""iceoryx2, through the Rust program in `../iceoryx2`."""

import shutil
import tempfile
from pathlib import Path

from .plan import COPIED, HANDED_OVER, ONE_COPY, Settings, Variant
from .process import build_crate, json_lines, pair, with_bandwidth


class Iceoryx2:
    """iceoryx2's publish/subscribe, polled."""

    name = "iceoryx2"
    version = ""
    how = (
        "own program (iceoryx2/), publish/subscribe of byte slices between two ipc services, no overflow, publisher "
        "retries until delivered, queue of 16 MiB but 4 to 256 messages"
    )
    variants = (
        Variant("fill and read", COPIED, "copied", "loan, fill from private memory; read into private memory"),
        Variant("fill", ONE_COPY, "written", "loan, fill from private memory; the sample stays where it is"),
        Variant("loan and send", HANDED_OVER, "untouched", "loan, send, receive, release"),
    )

    def prepare(self, settings: Settings) -> None:
        """See Peer."""
        self.program, self.version = build_crate("iceoryx2", "iceoryx2", settings)

    def measure(self, variant: Variant, settings: Settings) -> list[dict]:
        """See Peer."""
        folder = Path(tempfile.mkdtemp(prefix="peers-iceoryx2-"))
        tail = [str(folder), variant.use, str(settings.cell_ms), *map(str, settings.sizes)]
        try:
            text = pair([self.program, "server", *tail], [self.program, "client", *tail], settings)
        finally:
            shutil.rmtree(folder)
            for shared in Path("/dev/shm").glob(f"{folder.name}*"):
                shared.unlink()
        return with_bandwidth(json_lines(text))
