"""Presets: named values for settings that are left at their default.

A setting with another value wins over the preset, and so does one that is given its default on the command line or in a
grid. Flower does not tell an explicit default from an absent one: there, a setting at its default counts as left at it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# A value of a preset: as many as a participating client trains on, by the other settings.
TRAIN_RECORDS = "every training record"


@dataclass(frozen=True)
class Choice:
    """A preset's value of one setting, and why (for `papfl explain`)."""

    setting: str
    value: Any
    reason: str


# From the paper's setting to the aligned one, in the order of the ablation: what each step changes. All of it is public,
# or computed from releases that are made anyway: the guarantee is the same.
ALIGNED_STEPS: dict[str, tuple[Choice, ...]] = {
    "accounting": (
        Choice("accountant", "gdp", "the exact epsilon of Gaussian releases: less noise for the same guarantee"),
        Choice("schedule", "balanced", "the client that takes part most often decides the noise: nobody does"),
        Choice("context-sensitivity", "tight", "the diameter of phi's range, half of the published bound"),
    ),
    "context": (
        Choice("context-records", TRAIN_RECORDS, "the noise of a mean falls with the records behind it"),
        Choice("context-grid", 5, "patches tell clients apart where the means of whole channels don't"),
        Choice("context-center", "public", "images are close to the data set's public mean; their differences are the signal"),
        Choice("context-radius", 0.1, "most of phi is clipped to its direction, which is what matters; noise falls with it"),
    ),
    "share": (
        Choice("context-noise-ratio", 0.25, "one context serves all rounds and future clients: it gets more of the budget than one gradient"),
    ),
    "entry": (
        Choice("context-entry", "whitened", "small differences between clients count like large ones, those that may be noise less"),
        Choice("context-gain", 0.1, "what clients share is learned before what tells them apart"),
    ),
    "model": (
        Choice("input-scaling", "standardized", "inputs of mean 0 and variance 1, by public constants"),
        Choice("reference-scale", 2.0, "PyTorch's initialisation shrinks signals layer by layer"),
    ),
    "basis": (
        Choice("basis", "layers", "no coefficient mixes layers"),
        Choice("coefficient-noise", 22.0, "the noise's length grows with sqrt(k): fewer coefficients where it is large"),
    ),
    "optimiser": (
        Choice("learning-rate", 2.5, "of a run without noise"),
        Choice("learning-rate-noise", 0.7, "less where the noise is long against the gradients"),
        Choice("learning-rate-schedule", "linear", "noise averages out towards the end"),
    ),
    "batches": (
        Choice("batch-records", TRAIN_RECORDS, "no batch has more signal for its noise; it costs CPU alone"),
    ),
}  # fmt: skip
_CHOICES: dict[str, tuple[Choice, ...]] = {
    # The published system, with the defaults of docs/method.md section 10 where the paper is silent.
    "paper": (),
    # The same job in a few minutes on two cores: fewer rounds, everything else real.
    "quick": (Choice("num-rounds", 250, "half of the paper's: a few minutes on two cores"),),
    # The same guarantee, for accuracy: of participating clients and of clients never seen.
    "aligned": tuple(choice for step in ALIGNED_STEPS.values() for choice in step),
}
PRESETS: dict[str, dict[str, Any]] = {
    name: {choice.setting: choice.value for choice in choices} for name, choices in _CHOICES.items()
}
REASONS: dict[str, dict[str, str]] = {
    name: {choice.setting: choice.reason for choice in choices} for name, choices in _CHOICES.items()
}
