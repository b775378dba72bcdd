"""Fields of the settings: kind, allowed values, reason, group, as metadata of a dataclass field."""

from __future__ import annotations

from dataclasses import Field, field
from typing import Any

from common import validation


def choice_field(default: str, choices: tuple[str, ...], help: str, group: str) -> Any:
    """One of `choices`."""
    return field(default=default, metadata={"kind": "choice", "choices": choices, "help": help, "group": group})


def text_field(default: str, help: str, group: str) -> Any:
    """Any text."""
    return field(default=default, metadata={"kind": "text", "help": help, "group": group})


def flag_field(default: bool, help: str, group: str) -> Any:
    """True or false."""
    return field(default=default, metadata={"kind": "flag", "help": help, "group": group})


def int_field(default: int, help: str, group: str, **bounds: int) -> Any:
    """An integer within `bounds` (see `common.validation.integer`)."""
    return field(default=default, metadata={"kind": "int", "bounds": bounds, "help": help, "group": group})


def float_field(default: float | None, help: str, group: str, **bounds: float) -> Any:
    """A number; a default of None stands for "auto"."""
    return field(default=default, metadata={"kind": "float", "bounds": bounds, "help": help, "group": group})


def key_of(name: str) -> str:
    """`snake_case` field name → `kebab-case` key of Flower's configuration."""
    return name.replace("_", "-")


def check_field(spec: Field[Any], value: Any) -> None:
    """Raises `ValueError`, naming the setting, for a value of the wrong type or out of range."""
    meta = spec.metadata
    name = key_of(spec.name)
    if meta["kind"] == "choice":
        validation.one_of(name, value, meta["choices"])
    elif meta["kind"] == "flag":
        validation.boolean(name, value)
    elif meta["kind"] == "int":
        validation.integer(name, value, **meta["bounds"])
    elif meta["kind"] == "float":
        if not (value is None and spec.default is None):
            validation.number(name, value, **meta["bounds"])
    elif not isinstance(value, str):
        raise ValueError(f"{name} must be a string. Received {value!r}.")
