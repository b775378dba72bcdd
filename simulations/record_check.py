"""What a result file must look like: they are shared between people, so a report checks them before it trusts them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from common.settings import Settings

Check = Callable[[str, Any], None]


def check_record(record: Any) -> None:
    """Raises `ValueError`, naming the first part that is missing or of the wrong kind."""
    _mapping(
        settings=_settings,
        numerics=_any_mapping,
        privacy=_mapping(epsilon=_optional),
        noise=_mapping(norm=_number),
        accuracy=_mapping(seen=_optional, future=_optional, per_client=_each(_number)),
        evaluations=_list(_mapping(round=_number, seen=_optional, future=_optional)),
        references=_references,
        uplink=_mapping(messages=_number, message_bytes=_number, bits_per_coordinate=_optional),
        traces=_each(_list(_number)),
        milliseconds=_each(_optional),
        cpu_seconds=_number,
    )("record", record)
    _gains("record.gains", record.get("gains"))


def _fail(name: str, wanted: str, value: Any) -> None:
    raise ValueError(f"{name} must be {wanted}. Received {str(value)[:80]!r}.")


def _number(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e300 or math.isnan(value):
        _fail(name, "a finite number", value)


def _optional(name: str, value: Any) -> None:
    if value is not None:
        _number(name, value)


def _any_mapping(name: str, value: Any) -> None:
    if not isinstance(value, dict):
        _fail(name, "a mapping", value)


def _mapping(**parts: Check) -> Check:
    def check(name: str, value: Any) -> None:
        _any_mapping(name, value)
        for key, inner in parts.items():
            if key not in value:
                _fail(name, f"a mapping with {key}", value)
            inner(f"{name}.{key}", value[key])

    return check


def _each(inner: Check) -> Check:
    def check(name: str, value: Any) -> None:
        _any_mapping(name, value)
        for key, item in value.items():
            inner(f"{name}.{key}", item)

    return check


def _list(inner: Check) -> Check:
    def check(name: str, value: Any) -> None:
        if not isinstance(value, list):
            _fail(name, "a list", value)
        for index, item in enumerate(value):
            inner(f"{name}[{index}]", item)

    return check


def _settings(name: str, value: Any) -> None:
    _any_mapping(name, value)
    # Where the gains of a replay came from is not part of the record.
    gains = {"replay-gains": "recorded"} if value.get("variant") == "replay-u0" else {}
    Settings.from_config({**value, **gains})


def _references(name: str, value: Any) -> None:
    _any_mapping(name, value)
    if "commonest_label" in value:
        _mapping(seen=_optional, future=_optional)(f"{name}.commonest_label", value["commonest_label"])


def _gains(name: str, value: Any) -> None:
    """None, or a lower triangle of numbers."""
    if value is not None:
        _list(_list(_number))(name, value)
        if any(len(row) != index + 1 for index, row in enumerate(value)):
            _fail(name, "a lower triangle", value)
