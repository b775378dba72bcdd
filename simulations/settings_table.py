"""The settings reference, generated from the code: TOML for pyproject.toml, Markdown for the README, text for a terminal."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from common.settings import AUTO, Settings


def rows() -> list[tuple[str, str, str, str, str]]:
    """(group, key, default, allowed, meaning) of every setting."""
    result = []
    for spec in dataclasses.fields(Settings):
        meta = spec.metadata
        result.append((meta["group"], spec.name.replace("_", "-"), _toml(spec.default), _allowed(spec), meta["help"]))
    return result


def as_toml() -> str:
    """Lines of `[tool.flwr.app.config]`, grouped, each with its meaning."""
    lines, group = [], ""
    for row_group, key, default, _, meaning in rows():
        if row_group != group:
            lines.append(f"# {row_group}")
            group = row_group
        lines.append(f"{key} = {default}  # {meaning}")
    return "\n".join(lines)


def as_markdown() -> str:
    """One table."""
    lines = ["| setting | default | allowed | meaning |", "|---|---|---|---|"]
    lines += [f"| `{key}` | `{default}` | {allowed} | {meaning} |" for _, key, default, allowed, meaning in rows()]
    return "\n".join(lines)


def as_text() -> str:
    """For a terminal."""
    text = "\n".join(f"{key} = {default}\n    {meaning} ({allowed})" for _, key, default, allowed, meaning in rows())
    return text.replace("≥", ">=").replace("≤", "<=")


def _toml(default: Any) -> str:
    return json.dumps(AUTO if default is None else default)


def _allowed(spec: dataclasses.Field[Any]) -> str:
    meta = spec.metadata
    if meta["kind"] == "choice":
        return " or ".join(f"`{choice}`" for choice in meta["choices"])
    if meta["kind"] in ("flag", "text"):
        return {"flag": "`true` or `false`", "text": "text"}[meta["kind"]]
    signs = {"at_least": "≥", "above": ">", "at_most": "≤", "below": "<"}
    bounds = [f"{signs[name]} {value:g}" for name, value in meta["bounds"].items() if value < 2**32]
    kind = "integer" if meta["kind"] == "int" else "number"
    auto = " or `auto`" if spec.default is None else ""
    return " ".join([kind, ", ".join(bounds)]).strip() + auto
