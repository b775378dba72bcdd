"""What a command writes to: terminals that know ASCII alone, and readers that have gone."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator

# What a shell reports for a program that a closed pipe has ended: 128 + SIGPIPE.
CLOSED_PIPE = 141


@contextlib.contextmanager
def plain_streams() -> Iterator[None]:
    """Letters that a terminal doesn't have are written as their code instead of ending the command; a reader that has seen
    enough (`papfl settings | head`) ends it quietly, with code `CLOSED_PIPE`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:  # `papfl … >&-`
                sys.stdout.flush()
    except OSError as error:
        # The interpreter flushes once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            sys.exit(CLOSED_PIPE)
        print(f"papfl: standard output cannot be written: {error}", file=sys.stderr)
        sys.exit(1)


def as_file(text: str) -> None:
    """Print what is meant for a file, which is UTF-8 whatever the terminal is."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    print(text)
