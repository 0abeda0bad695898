"""Aeron IPC, through the Java program in `../aeron`."""

import shutil
import tempfile
from pathlib import Path

from .plan import COPIED, HERE, ONE_COPY, Settings, Variant
from .process import build, json_lines, need, pair, with_bandwidth

VERSION = "1.44.1"
JAR = f"aeron-all-{VERSION}.jar"
REMEDY = "apt-get install default-jdk-headless maven, and let maven reach its repository"
COPY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
SETTLE_S = 1.0
"""A client that finds no driver asks again only once a second or so."""


class Aeron:
    """Aeron's IPC between two JVMs."""

    name = "Aeron"
    version = VERSION
    how = (
        "own program (aeron/Peer.java), exclusive publications, terms of 16 MiB (64 MiB above 2 MiB messages), mtu 16 "
        "KiB + 32, busy polling; the media driver runs in the server's own loop (INVOKER), for want of a third core; "
        "64-bit HotSpot, bounds checks off, memory touched before"
    )
    variants = (
        Variant("offer, copy out", COPIED, "copied", "fragments go straight to their place in private memory"),
        Variant("offer, read in place", ONE_COPY, "written", "a message above 16 KiB stays in several fragments"),
    )
    flags = (
        "-XX:+UseSerialGC",
        "-Xms256m",
        "-Xmx256m",
        "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
        "-Dagrona.disable.bounds.checks=true",
    )

    def prepare(self, settings: Settings) -> None:
        """See Peer."""
        self.java = need("java", REMEDY)
        compiler = need("javac", REMEDY)
        folder = settings.target / "aeron"
        jar = folder / JAR
        if not jar.exists():
            maven = need("mvn", REMEDY)
            copy = [maven, "-q", COPY_PLUGIN, f"-Dartifact=io.aeron:aeron-all:{VERSION}", f"-DoutputDirectory={folder}"]
            build(copy, f"download of io.aeron:aeron-all:{VERSION}", REMEDY)
        build([compiler, "-d", str(folder), "-cp", str(jar), str(HERE / "aeron/Peer.java")], "javac", REMEDY)
        self.classes = f"{jar}:{folder}"

    def measure(self, variant: Variant, settings: Settings) -> list[dict]:
        """See Peer."""
        folder = Path(tempfile.mkdtemp(prefix="peers-aeron-", dir="/dev/shm"))
        jvm = [self.java, "-cp", self.classes, *self.flags, "Peer"]
        tail = [str(folder / "driver"), variant.use, str(settings.cell_ms), *map(str, settings.sizes)]
        try:
            text = pair([*jvm, "server", *tail], [*jvm, "client", *tail], settings, settle_s=SETTLE_S)
        finally:
            shutil.rmtree(folder)
        return with_bandwidth(json_lines(text))
