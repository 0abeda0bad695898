"""Options that the programs of this comparison share."""

import argparse
import os


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
