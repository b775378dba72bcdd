"""Conditions between settings, whatever each of them allows on its own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from common.settings import Settings

# Of one run. The time to plan it grows with them.
MAX_RELEASES = 10**6


def check_together(settings: Settings) -> None:
    """Raises `ValueError`, naming the settings, where they don't go together."""
    if settings.clients_per_round > settings.num_participating:
        raise ValueError(
            f"clients-per-round must be at most num-participating = {settings.num_participating}. "
            f"Received {settings.clients_per_round}."
        )
    # Schedule and plan are made before anything else, by server and clients: in bounded time, whoever sent the settings.
    for names, size, largest in (
        ("num-rounds x clients-per-round", settings.num_rounds * settings.clients_per_round, MAX_RELEASES),
        (
            "num-rounds x clients-per-round x records-per-client, where batch-schedule is cyclic,",
            settings.num_rounds * settings.clients_per_round * settings.records_per_client
            if settings.batch_schedule == "cyclic"
            else 0,
            100 * MAX_RELEASES,
        ),
        ("t-max-override x num-participating", settings.t_max_override * settings.num_participating, MAX_RELEASES),
        ("num-rounds x num-participating", settings.num_rounds * settings.num_participating, 1000 * MAX_RELEASES),
    ):
        if size > largest:
            raise ValueError(f"{names} must be at most {largest}. Received {size}.")
    train = settings.train_records
    if not 1 <= train < settings.records_per_client:
        raise ValueError(
            f"train-fraction must leave at least one of records-per-client = {settings.records_per_client} records "
            f"on each side. Received {settings.train_fraction!r}."
        )
    if settings.batch_records > train:
        raise ValueError(
            f"batch-records must be at most the {train} training records. Received {settings.batch_records}."
        )
    if settings.context_records > train:
        raise ValueError(
            f"context-records must be at most the {train} training records. Received {settings.context_records}."
        )
    if (settings.context_radius > 0) != bool(settings.context_center):
        raise ValueError(
            "context-radius and context-center go together (a radius > 0 and a public centre, or neither). "
            f"Received context-radius={settings.context_radius!r}, context-center={settings.context_center!r}."
        )
    if bool(settings.input_mean) != bool(settings.input_stddev):
        raise ValueError(
            "input-mean and input-stddev go together (both or neither). "
            f"Received input-mean={settings.input_mean!r}, input-stddev={settings.input_stddev!r}."
        )
    if settings.input_mean and settings.dataset != "own":
        raise ValueError(f"input-mean must be empty unless dataset is 'own'. Received {settings.input_mean!r}.")
    if settings.server_momentum and settings.server_optimizer != "sgd":
        raise ValueError(
            f"server-momentum must be 0 unless server-optimizer is 'sgd'. Received {settings.server_momentum!r}."
        )

    if bool(settings.replay_gains) != (settings.variant == "replay-u0"):
        raise ValueError(
            f"replay-gains must be given for variant 'replay-u0' and for it alone. Received {settings.replay_gains!r}."
        )
    if settings.run_name and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", settings.run_name):
        raise ValueError(
            "run-name must be up to 100 letters, digits, dots, dashes and underscores (it names folders here and on "
            f"clients), beginning with a letter or digit. Received {settings.run_name!r}."
        )
    if settings.block_size not in (1, 4):
        raise ValueError(f"block-size must be 1 or 4. Received {settings.block_size}.")
    if settings.noise_stddev == 0 and settings.channel != "dg":
        raise ValueError(
            f"channel must be 'dg' where noise-stddev is 0: the others need noise. Received {settings.channel!r}."
        )
    # Below these, squares leave the range of floating point.
    for name, value, least in (
        ("noise-stddev", settings.noise_stddev, 1e-12),
        ("context-radius", settings.context_radius, 1e-6),
    ):
        if value and value < least:
            raise ValueError(f"{name} must be 0 or at least {least:g}. Received {value!r}.")
