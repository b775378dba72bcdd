"""All doors, and what one knock on a door may do: return, or raise the door's own errors; in bounded time."""

import time
from dataclasses import dataclass

from tests.hostile import files, messages

TARGETS = {**messages.TARGETS, **files.TARGETS}


@dataclass
class Tally:
    """What was seen at one door."""

    inputs: int = 0
    refused: int = 0
    slowest_seconds: float = 0.0


def knock(name, data, tally):
    """One input. Anything but a return or an allowed error goes up: a finding."""
    function, allowed = TARGETS[name]
    started = time.perf_counter()
    try:
        function(data)
    except allowed:
        tally.refused += 1
    tally.inputs += 1
    tally.slowest_seconds = max(tally.slowest_seconds, time.perf_counter() - started)
