"""Noise and its accounting, and how releases travel."""

from __future__ import annotations

from dataclasses import dataclass

from common.settings.fields import choice_field, float_field, int_field


@dataclass(frozen=True, kw_only=True)
class PrivacySettings:
    """Privacy."""

    epsilon: float = float_field(16.0, "privacy budget of every client", "privacy", at_least=1e-6, at_most=1e6)
    delta: float = float_field(1e-5, "delta of (epsilon, delta)", "privacy", at_least=1e-100, below=1.0)
    accountant: str = choice_field(
        "rdp", ("rdp", "gdp"), "closed-form Renyi conversion of eq. 7 (paper), or exact Gaussian DP", "privacy"
    )
    noise_stddev: float | None = float_field(
        None, "sigma_g; auto: calibrated to epsilon; 0: no noise, no guarantee", "privacy", at_least=0.0, at_most=1e9
    )
    context_noise_ratio: float | None = float_field(
        None,
        "(sigma_c/Delta_c)/(sigma_g/Delta_g); auto: such that sigma_c = sigma_g (paper)",
        "privacy",
        at_least=1e-9,
        at_most=1e9,
    )
    t_max_override: int = int_field(
        0, "calibrate for this many participations instead of the schedule's maximum; 0: off", "privacy", at_least=0
    )
    clip_norm: float = float_field(
        1.0, "C_g, bound on one record's coefficient gradient", "privacy", at_least=1e-9, at_most=1e9
    )
    batch_records: int = int_field(333, "m_g, records in a batch and fixed denominator", "privacy", at_least=1)
    batch_schedule: str = choice_field(
        "uniform",
        ("uniform", "cyclic"),
        "fresh draw each round (paper), or cyclic batches accounted per record",
        "privacy",
    )


@dataclass(frozen=True, kw_only=True)
class ChannelSettings:
    """Uplink."""

    channel: str = choice_field(
        "lrsuq",
        ("lrsuq", "dg", "dg-q12"),
        "exact Gaussian channel at a fraction of a bit per coordinate, float32, or 12 bits after the noise",
        "channel",
    )
    block_size: int = int_field(
        4,
        "coordinates that lrsuq quantises together: 4 (D4 lattice, paper) or 1 (layered dither)",
        "channel",
        at_least=1,
        at_most=4,
    )
    lrsuq_padding: int = int_field(
        0,
        "lrsuq payloads are padded to a multiple of this many bytes; 0: not padded",
        "channel",
        at_least=0,
        at_most=2**20,
    )
    lrsuq_public_scale: float = float_field(
        0.0,
        "public guess of the update's coordinates in sigmas instead of a header that depends on them; 0: off",
        "channel",
        at_least=0.0,
        at_most=2.0**40,
    )
