"""`papfl explain`: what settings mean before anything is spent: noise, signal, bytes, ε, cost in CPU."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np
import torch

from client_app.gradient_path import make_gradients
from common.channel import ChannelEvent, EventKeys, make_channel
from common.data.splits import batch, split
from common.numerics import pin_torch
from common.presets import PRESETS, REASONS, TRAIN_RECORDS
from common.privacy.accountant import worst_record_rho
from common.privacy.events import GaussianRelease
from common.privacy.report import cautions, guarantee
from common.randomness import Purpose, public_generator
from common.rules import Rules, make_rules
from common.settings import Settings
from common.space import basis_of, reference_of
from server_app.optimizer import base_learning_rate

# In place of a preset's reasons that don't hold for own records without public constants.
_WITHOUT_CONSTANTS = {
    "context-center": "input-mean and input-stddev are not given: phi of most images lies far from that of 0.5, and is clipped alike",
    "input-scaling": "input-mean and input-stddev are not given: [0, 1] becomes [-1, 1]",
}


@dataclass(frozen=True)
class Line:
    """One fact: name, value with its unit, and what it means."""

    name: str
    value: str
    meaning: str


def explain(settings: Settings, preset: str) -> list[tuple[str, list[Line]]]:
    """Sections of facts. Looks at no record: gradients are timed on noise, updates are Gaussian.

    Raises:
        ValueError: settings that don't go together.
    """
    rules = make_rules(settings)
    return [
        (f"preset {preset}", [Line(key, str(value), why) for key, value, why in _choices(settings, preset)]),
        ("privacy", _privacy(rules)),
        ("signal and noise", _signal(rules)),
        ("cost", _cost(rules)),
    ]


def _choices(settings: Settings, preset: str) -> list[tuple[str, object, str]]:
    """Settings that differ from the general defaults or were the preset's to choose, with its reasons for its own values."""
    places = {"out-dir", "data-dir", "run-name", "seed"}
    chosen = {k: settings.train_records if v == TRAIN_RECORDS else v for k, v in PRESETS.get(preset, {}).items()}
    reasons = REASONS.get(preset, {})
    if settings.dataset == "own" and not settings.input_mean:
        reasons = reasons | _WITHOUT_CONSTANTS
    shown = (chosen.keys() | settings.changed().keys()) - places
    return [
        (key, value, reasons[key] if key in chosen and chosen[key] == value else "given")
        for key, value in settings.to_config().items()
        if key in shown
    ]


def _releases(rules: Rules, client: int) -> list[GaussianRelease]:
    rounds = [t for t, clients in enumerate(rules.schedule.rounds, start=1) if client in clients]
    return [rules.mechanism.event(client, round) for round in (*rounds, 0)]


def _privacy(rules: Rules) -> list[Line]:
    settings, counts = rules.settings, rules.schedule.counts()
    lines = [Line(*fact) for fact in rules.mechanism.explain()]
    lines += [Line("caution", "", caution) for caution in cautions(settings)]
    if settings.deterministic or math.isinf(rules.mechanism.epsilon):
        return [*lines, Line("epsilon", "unbounded", f"the guarantee is {guarantee(settings)}")]
    lines.append(
        Line(
            "epsilon",
            _number(rules.mechanism.epsilon),
            f"of the client that pays most, at delta {settings.delta:g}, accountant {settings.accountant}",
        )
    )
    spent = [
        rules.accountant.epsilon(worst_record_rho(_releases(rules, c)), settings.delta) for c in range(len(counts))
    ]
    unit = "its worst record" if settings.batch_schedule == "cyclic" else "every record of it"
    lines.append(
        Line("epsilon by client", f"{_number(min(spent))} to {_number(max(spent))}", f"each is that of {unit}")
    )
    if settings.batch_schedule == "cyclic":
        worst = counts.index(max(counts))
        lines.append(Line("batches of a record", _batches(rules, worst), f"of the {max(counts)} of client {worst}"))
    if settings.num_future:
        alone = rules.accountant.epsilon(rules.mechanism.event(settings.num_participating, 0).rho, settings.delta)
        lines.append(Line("epsilon of a future client", _number(alone), "its one context"))
    return lines


def _batches(rules: Rules, client: int) -> str:
    settings = rules.settings
    train = split(settings, client, settings.records_per_client).train
    rounds = rules.schedule.counts()[client]
    counts = np.bincount(
        np.concatenate([batch(settings, client, t + 1, t, train) for t in range(rounds)]),
        minlength=settings.records_per_client,
    )[train]
    return f"{counts.min()} to {counts.max()}"


def _signal(rules: Rules) -> list[Line]:
    settings = rules.settings
    norm = rules.noise_norm
    lines = [Line("noise norm of a gradient", f"{norm:.4g}", f"sigma_g sqrt(k), k = {rules.space.dim}; a clipped mean gradient is at most C_g = {settings.clip_norm:g}")]  # fmt: skip
    if norm > 0:
        lines.append(Line("signal to noise of a gradient", f"at most {settings.clip_norm / norm:.3g}", "if all records agreed; a few hundredths to a quarter of it in practice"))  # fmt: skip
        total = math.sqrt(max(rules.schedule.counts()))
        lines.append(Line("of all gradients of a client", f"at most {total * settings.clip_norm / norm:.3g}", "what it adds up to if the direction stays"))  # fmt: skip
    lines.append(Line("learning rate", f"{base_learning_rate(rules):.3g}", "eta of the first round, after what learning-rate-noise makes of it"))  # fmt: skip
    context = rules.mechanism.channel_noise(0, 0) * math.sqrt(rules.context_map.dim)
    reach = rules.context_map.radius if rules.context_map.center is not None else 1.0
    lines.append(Line("noise norm of a context", f"{context:.4g}", f"{rules.context_map.dim} numbers within {reach:g} of their centre"))  # fmt: skip
    if context > 0:
        # Mean φ of clients of the built-in sets: this far from their mean (0.009 to 0.030 without a ball), in a small ball
        # of radius q 0.12 q to 0.16 q.
        spread = min(0.02, 0.14 * reach)
        ratio = spread / context
        lines.append(Line("signal to noise of a context", f"about {ratio:.2g}", "if clients differ as those of the built-in sets do; below 1 contexts say little about records"))  # fmt: skip
    return lines


def _cost(rules: Rules) -> list[Line]:
    settings = rules.settings
    updates = settings.num_rounds * settings.clients_per_round
    seconds = _seconds_per_update(rules)
    lines = [
        Line("CPU of an update", f"{seconds:.2f} s", "measured now, one thread, on noise instead of records"),
        Line("CPU of the run", f"{seconds * updates / 60:.0f} min", f"{updates} updates, shared by as many cores as clients work at once"),
    ]  # fmt: skip
    if rules.mechanism.channel_noise(0, 1) > 0:
        few, many = (_message_bytes(rules, share * settings.clip_norm) for share in (0.1, 1.0))
        lines.append(Line("bytes of an update", f"{few} to {many}", f"by {settings.channel}, for norms of 0.1 to 1 C_g; the float32 vector has {4 * rules.space.dim}"))  # fmt: skip
        lines.append(Line("uplink of the run", f"{few * updates / 1e6:.2f} to {many * updates / 1e6:.2f} MB", "all clients together"))  # fmt: skip
    return lines


def _seconds_per_update(rules: Rules) -> float:
    settings, spec = rules.settings, rules.spec
    pin_torch()
    model, theta = reference_of(settings, spec)
    gradients = make_gradients(model, basis_of(rules.space, seed=settings.seed), spec.image_shape)
    rng = torch.Generator().manual_seed(0)
    inputs = torch.rand(settings.batch_records, *spec.image_shape, generator=rng)
    labels = torch.randint(spec.num_classes, (settings.batch_records,), generator=rng)
    times = []
    for _ in range(3):
        started = time.process_time()
        gradients(theta, inputs, labels, clip_norm=settings.clip_norm, denominator=settings.batch_records)
        times.append(time.process_time() - started)
    return min(times)


def _message_bytes(rules: Rules, norm: float) -> int:
    k, noise = rules.space.dim, rules.mechanism.channel_noise(0, 1)
    update = public_generator(rules.settings.seed, Purpose.AUDIT).standard_normal(k) * norm / math.sqrt(k)
    event = ChannelEvent(rules.settings.name, 1, 0, k, noise)
    return len(make_channel(rules.settings).encode(update, event, EventKeys(bytes(32), bytes(range(32)))))


def _number(value: float) -> str:
    return "unbounded" if math.isinf(value) else f"{value:.4g}"
