"""Many releases in few words: those that differ only in their round share everything else.

For what is written again and again (a checkpoint, a client's state): its size and time hardly grow with a run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from common.privacy.events import GaussianRelease

Groups = list[dict[str, Any]]


def pack(events: Iterable[GaussianRelease]) -> Groups:
    """Plain values: a group per (client, kind, sensitivity, noise, records, order), with its rounds in order."""
    groups: Groups = []
    index: dict[tuple[Any, ...], list[int]] = {}
    for event in events:
        key = (event.client, event.kind, event.sensitivity, event.noise_stddev, event.records, event.order)
        if key not in index:
            index[key] = []
            groups.append({**_shared(event), "rounds": index[key]})
        index[key].append(event.round)
    return groups


def add(groups: Groups, event: GaussianRelease) -> None:
    """Append one release."""
    shared = _shared(event)
    for group in groups:
        if all(group[name] == value for name, value in shared.items()):
            group["rounds"].append(event.round)
            return
    groups.append({**shared, "rounds": [event.round]})


def unpack(groups: Groups) -> list[GaussianRelease]:
    """The releases, by round and client.

    Raises:
        ValueError, KeyError, TypeError: not what `pack` makes.
    """
    events: list[GaussianRelease] = []
    for group in groups:
        shared = {name: value for name, value in group.items() if name != "rounds"}
        if shared["records"] is not None:
            shared["records"] = tuple(shared["records"])
        first: GaussianRelease | None = None
        for round in group["rounds"]:
            if type(round) is not int or round < 0:
                raise ValueError(f"round must be an integer >= 0. Received {round!r}.")
            first = first or GaussianRelease(round=round, **shared)
            events.append(_at(first, round))
    return sorted(events, key=lambda event: (event.round, event.client))


def _shared(event: GaussianRelease) -> dict[str, Any]:
    """All but the round; records as JSON has them."""
    values = {field.name: getattr(event, field.name) for field in dataclasses.fields(event) if field.name != "round"}
    return {**values, "records": None if event.records is None else list(event.records)}


def _at(event: GaussianRelease, round: int) -> GaussianRelease:
    """The same release in another round, without checking again what was checked."""
    copy = object.__new__(GaussianRelease)
    copy.__dict__.update(event.__dict__, round=round)
    return copy
