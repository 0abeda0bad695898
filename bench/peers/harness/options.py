"""Options that the programs of this comparison share."""

import argparse
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from .plan import REPOSITORY

MTUS = range(1280, 65_536)


def positive(text: str) -> int:
    """A whole number above 0."""
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def two_cores(text: str) -> tuple[int, int]:
    """Two different cores of this process."""
    allowed = os.sched_getaffinity(0)
    cores = [int(word) for word in text.split(",") if word.isdigit() and int(word) in allowed]
    if len(cores) != 2 or cores[0] == cores[1]:
        raise argparse.ArgumentTypeError(f"{text!r} is not two different cores of {sorted(allowed)}, such as 0,1")
    return cores[0], cores[1]


def default_cores(parser: argparse.ArgumentParser) -> tuple[int, int]:
    """The first two cores of this process; ends the program where there is only one."""
    try:
        return two_cores(",".join(map(str, sorted(os.sched_getaffinity(0))[:2])))
    except argparse.ArgumentTypeError as error:
        parser.error(str(error))


def mtu(text: str) -> int:
    """What `cutthrough perf --veth` takes."""
    if not text.isdigit() or int(text) not in MTUS:
        raise argparse.ArgumentTypeError(f"{text!r} is not an MTU from {MTUS[0]} to {MTUS[-1]}, such as 1500 or 9000")
    return int(text)


def several(convert: Callable) -> Callable:
    """A comma-separated list, each part converted."""
    return lambda text: [convert(word) for word in text.split(",")]


def default_cutthrough() -> Path:
    """Where cargo puts the release build."""
    return Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")) / "release/cutthrough"


def check_words(words: list[str], known: Iterable[str], parser: argparse.ArgumentParser) -> None:
    """Ends the program if a word of `--only` is not known."""
    for word in words:
        if word not in known:
            parser.error(f"argument --only: {word!r} is none of {', '.join(known)}")


def check_folders(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Ends the program if a file is to be written where no folder is."""
    for file in (options.out, options.json):
        if file is not None and not file.parent.is_dir():
            parser.error(f"no folder {file.parent} to write {file.name} into")


def write(page: str, lines: Iterable[str], options: argparse.Namespace) -> None:
    """The table and the JSON lines, where they were asked for."""
    if options.out is None:
        print(page, end="")
    else:
        options.out.write_text(page)
    if options.json is not None:
        options.json.write_text("".join(line + "\n" for line in lines))
