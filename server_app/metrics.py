"""What a person would look at: one flat row per round. Noiseless parts lie outside ε and need `diagnostics`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

from common.data.splits import is_future
from common.protocol import METRICS
from common.rules import Rules
from common.settings import Settings
from server_app.federation import Replies
from server_app.generator import Generator

# No honest report comes near; sums and ratios of what is within stay finite.
_LARGEST = 1e12


def mean(values: Iterable[float]) -> float:
    """Arithmetic mean of at least one number."""
    items = list(values)
    return sum(items) / len(items)


def training(replies: Replies, rules: Rules) -> dict[str, Any]:
    """Means over the round's clients of what they reported about their un-noised updates; nothing where that is off."""
    if rules.settings.diagnostics == "off":
        return {}
    reports = [dict(replies.accepted[c].metric_records.get(METRICS, {})) for c in sorted(replies.accepted)]
    row: dict[str, Any] = {}
    for key in ("loss", "update-norm", "clipped-fraction", "nonfinite-records", "gradient-ms", "encode-ms"):
        values = [float(report[key]) for report in reports if _is_number(report.get(key))]
        if values:
            row[key.replace("-", "_")] = mean(values)
    noise = rules.mechanism.update_noise
    if "update_norm" in row and noise > 0:
        row["signal_to_noise"] = row["update_norm"] / (noise * rules.space.dim**0.5)
    return row


def shared(replies: Replies, settings: Settings) -> bool:
    """True where lengths and times of messages may be recorded: functions of un-noised updates, like all diagnostics, and so
    only if the run and each of the round's clients share those."""
    reports = [reply.metric_records.get(METRICS, {}) for reply in replies.accepted.values()]
    return settings.diagnostics != "off" and all("update-norm" in report for report in reports)


def hidden(generator: Generator, clients: Collection[int]) -> dict[str, float]:
    """‖h_i‖², the isotropic gain of eq. 9: mean over `clients`; nothing for a variant without a hidden state."""
    states = [generator.hidden(client) for client in sorted(clients)]
    if any(state is None for state in states):
        return {}
    return {"hidden_norm_squared": mean(float(np.square(state).sum()) for state in states if state is not None)}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST


def evaluation_due(settings: Settings, round: int) -> bool:
    """True after the last round and at the cadence of `evaluate-every`."""
    every = settings.evaluate_every
    return round == settings.num_rounds or (every > 0 and round % every == 0)


def evaluation(replies: Replies, settings: Settings) -> dict[str, Any]:
    """Accuracy per client, its means over participating (Seen) and future clients that answered, and who did not."""
    accuracy: dict[int, float] = {}
    for client in sorted(replies.accepted):
        report = dict(replies.accepted[client].metric_records.get(METRICS, {}))
        correct, count = report.get("correct"), report.get("num-examples")
        if not (_is_number(correct) and _is_number(count) and 0 <= correct <= count and count > 0):  # type: ignore[operator]
            replies.reject(client, "evaluation reply has no usable counts")
            continue
        accuracy[client] = correct / count  # type: ignore[operator]
    seen = [value for client, value in accuracy.items() if not is_future(settings, client)]
    future = [value for client, value in accuracy.items() if is_future(settings, client)]
    row: dict[str, Any] = {
        "accuracy_per_client": {str(client): value for client, value in accuracy.items()},
        "evaluation_failed": {str(client): reason for client, reason in sorted(replies.failed.items())},
    }
    if seen:
        row["seen_accuracy"] = mean(seen)
    if future:
        row["future_accuracy"] = mean(future)
    return row
