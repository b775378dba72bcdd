"""Every setting of a run: name, type, default, range, reason. The defaults are the paper's (preset `paper`).

Flower passes settings as flat key-value pairs (`[tool.flwr.app.config]`, `--run-config`). `Settings.from_config`
turns them into one frozen, validated object; an unknown key, a wrong type or a value out of range is refused by
name. `papfl settings` prints this table; a test holds `pyproject.toml` against it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any

from common.presets import PRESETS, TRAIN_RECORDS
from common.setting_checks import check_together
from common.setting_fields import check_field, choice_field, flag_field, float_field, int_field, key_of, text_field

AUTO = "auto"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings of one run. Field names are the keys of the run configuration with `_` for `-`."""

    # What to run, and where things go.
    preset: str = choice_field("paper", tuple(PRESETS), "named set of values for settings left at their default", "run")
    run_name: str = text_field("", "directory of the results below out-dir; empty: made from the main settings", "run")
    out_dir: str = text_field(
        "~/papfl-runs", "where results are written (absolute: a server's working directory is its own)", "run"
    )
    data_dir: str = text_field("~/.cache/papfl", "cache of the data sets", "run")
    seed: int = int_field(
        41,
        "public seed of schedule, partition, reference parameters, basis and generator",
        "run",
        at_least=0,
        at_most=2**63 - 1,
    )
    deterministic: bool = flag_field(False, "derive noise and keys from the seed: reproduction only, no privacy", "run")
    device: str = choice_field(
        "cpu", ("cpu", "cuda"), "where tensors live; bit-identity is claimed for cpu only", "run"
    )
    diagnostics: str = choice_field(
        "public-data",
        ("public-data", "off"),
        "noiseless per-round diagnostics lie outside epsilon: only for public data",
        "run",
    )
    resume: bool = flag_field(False, "continue the unfinished run of this name", "run")
    tensorboard: bool = flag_field(True, "write TensorBoard events beside the results", "run")
    evaluate_every: int = int_field(
        50, "rounds between evaluations; the last round is always evaluated; 0: only the last", "run", at_least=0
    )
    geometry_every: int = int_field(
        10, "rounds between traces of the hidden states and the update kernel (eq. 9); 0: none", "run", at_least=0
    )
    checkpoint_every: int = int_field(
        25, "rounds between checkpoints; rounds between them are journalled", "run", at_least=1
    )
    round_timeout: float = float_field(600.0, "seconds to wait for the replies of a round", "run", above=0.0)
    federation_timeout: float = float_field(60.0, "seconds to wait until all clients have joined", "run", above=0.0)
    require_future: bool = flag_field(
        True, "wait for future clients too; if not, those that join later are served by papfl personalize", "run"
    )
    task: str = choice_field(
        "train",
        ("train", "personalize"),
        "train, or give every connected client of a finished run its model (papfl personalize)",
        "run",
    )
    max_failed_rounds: int = int_field(
        3, "consecutive rounds without any accepted reply before the run is aborted", "run", at_least=1
    )

    # Who takes part.
    num_participating: int = int_field(40, "clients that train", "federation", at_least=1, at_most=10**5)
    num_future: int = int_field(
        10, "clients that only release a context and receive a model", "federation", at_least=0, at_most=10**5
    )
    num_rounds: int = int_field(500, "communication rounds", "federation", at_least=1, at_most=10**5)
    clients_per_round: int = int_field(2, "clients scheduled in a round", "federation", at_least=1, at_most=10**5)
    schedule: str = choice_field(
        "uniform",
        ("uniform", "balanced"),
        "uniform draws (paper), or participation counts that differ by at most one",
        "federation",
    )

    # Data and its partition.
    dataset: str = choice_field(
        "mnist",
        ("mnist", "cifar10", "own"),
        "official training split of this data set, or own: every node brings records of its own (docs/deployment.md)",
        "data",
    )
    image_shape: str = text_field("1,28,28", "channels,height,width of the records where dataset is own", "data")
    input_mean: str = text_field(
        "",
        "public mean of every channel where dataset is own, in [0, 1] ('0.49,0.48,0.45'); empty: 0.5. Never from the records",
        "data",
    )
    input_stddev: str = text_field(
        "", "public standard deviation of every channel where dataset is own; empty: 0.5", "data"
    )
    num_classes: int = int_field(
        10, "labels are 0 to num-classes - 1 where dataset is own", "data", at_least=2, at_most=10**5
    )
    records_per_client: int = int_field(
        1000, "equal client size; 50 x 1,000 fit both data sets", "data", at_least=2, at_most=10**7
    )
    dirichlet_alpha: float = float_field(
        0.5, "concentration of the label partition; smaller is more heterogeneous", "data", at_least=1e-4, at_most=1e6
    )
    train_fraction: float = float_field(
        0.8, "share of a participating client's records that train; the rest evaluates", "data", above=0.0, below=1.0
    )
    input_scaling: str = choice_field(
        "unit", ("unit", "standardized"), "model input: x/255 (paper), or standardised by public constants", "data"
    )

    # Personal model and coefficient space.
    model: str = choice_field("lenet", ("lenet",), "architecture of the personal model", "model")
    reference_init: str = choice_field(
        "default",
        ("default", "xavier", "he"),
        "reference parameters: PyTorch's initialisation, or Xavier's or He's (uniform) with biases of zero",
        "model",
    )
    reference_scale: float = float_field(
        1.0, "factor on the reference parameters; PyTorch's default shrinks signals layer by layer", "model", above=0.0
    )
    basis: str = choice_field(
        "fold",
        ("fold", "layers", "kron", "dct", "dense"),
        "signed strided fold, the same for every tensor alone, Kronecker factors (any model at the price of plain training), cosine transform, dense QR (small)",
        "model",
    )
    num_coefficients: int = int_field(
        16384, "k, dimension of the adaptation subspace", "model", at_least=1, at_most=10**7
    )
    kron_rank: int = int_field(
        32, "rank of every weight's block where basis is kron; lowered until k fits", "model", at_least=1, at_most=10**4
    )
    kron_ranks: str = text_field(
        "", "other ranks where basis is kron: 'pattern=rank,...' on parameter names; empty: none", "model"
    )
    kron_vectors: str = choice_field(
        "identity",
        ("identity", "frozen"),
        "where basis is kron: biases and normalisation move freely, or stay at the reference",
        "model",
    )
    coefficient_noise: float = float_field(
        0.0,
        "kappa: k is num-coefficients, but at most kappa C_g/sigma_g; 0: k does not follow the noise (paper)",
        "model",
        at_least=0.0,
        at_most=1e9,
    )

    # Private context.
    context_records: int = int_field(333, "m_c, records behind one context", "context", at_least=1)
    context_grid: int = int_field(
        1,
        "p: feature groups are channels x p x p patches; 1: whole channels (paper)",
        "context",
        at_least=1,
        at_most=64,
    )
    context_sensitivity: str = choice_field(
        "paper", ("paper", "tight"), "2/m_c as published, or 1/m_c, the diameter of the range of phi", "context"
    )
    context_center: str = text_field(
        "",
        "centre for phi: public (the data set's constants), 'mu,nu' for all groups, 2s numbers; empty: none (paper)",
        "context",
    )
    context_radius: float = float_field(
        0.0,
        "phi is clipped to this radius around context-center; 0: not clipped (paper)",
        "context",
        at_least=0.0,
        at_most=1.0,
    )
    context_entry: str = choice_field(
        "raw",
        ("raw", "standardized", "whitened"),
        "how cached contexts enter the generator: as released, coordinates or principal directions of equal spread (free)",
        "context",
    )
    context_gain: float = float_field(1.0, "factor on contexts as they enter the generator", "context", above=0.0)
    public_vector: str = choice_field(
        "grey",
        ("grey", "white", "zeros", "ones", "random"),
        "u_0 of the geometry controls: phi of the image of 0.5 or of 1, a standardised mean context, or entries of size 1",
        "context",
    )

    # Generator and its optimiser (on the server).
    variant: str = choice_field(
        "ours",
        (
            "ours",
            "global",
            "full",
            "deeplin",
            "direct",
            "deeplin-u0",
            "factorized-u0",
            "radial-u0",
            "replay-u0",
            "local",
        ),
        "map from context to coefficients: the method, its comparators, the geometry controls, every client alone (docs/method.md, section 8)",
        "generator",
    )
    replay_gains: str = text_field(
        "", "metrics.jsonl of the factorized-u0 run whose gains replay-u0 replays", "generator"
    )
    hidden_dim: int = int_field(100, "r, width of the hidden state", "generator", at_least=1, at_most=10**4)
    activation: str = choice_field(
        "tanh",
        ("tanh", "relu", "gelu"),
        "nonlinearity of the context network; tanh keeps ||h||^2, the gain, bounded",
        "generator",
    )
    hidden_output: str = choice_field(
        "activated",
        ("activated", "linear"),
        "last layer of the context network: with the nonlinearity after it, or without",
        "generator",
    )
    trunk_init: str = choice_field(
        "default",
        ("default", "xavier", "he"),
        "h_psi and V: PyTorch's initialisation, or Xavier's or He's (uniform) with biases of zero",
        "generator",
    )
    linear_bias: bool = flag_field(
        False, "V of deeplin has a bias: what all clients share does not depend on contexts far from zero", "generator"
    )
    output_init: str = choice_field(
        "zero", ("zero", "default"), "initial W; zero starts every client at the reference model", "generator"
    )
    server_optimizer: str = choice_field(
        "sgd", ("sgd", "adam"), "optimiser of eq. 6; plain SGD is the paper's", "generator"
    )
    server_momentum: float = float_field(0.0, "momentum of sgd", "generator", at_least=0.0, below=1.0)
    learning_rate: float | None = float_field(None, "eta; auto: 0.2 for CIFAR-10, else 0.1", "generator", above=0.0)
    trunk_learning_rate: float = float_field(
        1.0,
        "factor on eta for h_psi: 1 trains all of the generator alike (paper), 0 keeps h_psi's random start and trains W",
        "generator",
        at_least=0.0,
        at_most=1e3,
    )
    learning_rate_noise: float = float_field(
        0.0,
        "nu_0: eta is divided by 1 + nu/nu_0 with nu = sigma_g sqrt(k)/C_g; 0: eta does not follow the noise (paper)",
        "generator",
        at_least=0.0,
        at_most=1e6,
    )
    learning_rate_schedule: str = choice_field(
        "constant", ("constant", "cosine", "linear"), "eta over the rounds; cosine and linear fall to zero", "generator"
    )

    # Privacy.
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

    # Uplink.
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

    def __post_init__(self) -> None:
        for spec in dataclasses.fields(self):
            check_field(spec, getattr(self, spec.name))
        check_together(self)

    @property
    def train_records(self) -> int:
        """Training records of a participating client (4:1 by default: 800 of 1,000)."""
        return round(self.records_per_client * self.train_fraction)

    @property
    def num_clients(self) -> int:
        """Participating and future clients together."""
        return self.num_participating + self.num_future

    @property
    def eta(self) -> float:
        """The learning rate with "auto" resolved: 0.2 on CIFAR-10, 0.1 elsewhere."""
        if self.learning_rate is not None:
            return self.learning_rate
        return {"cifar10": 0.2}.get(self.dataset, 0.1)

    @property
    def name(self) -> str:
        """Name of the run: the setting, or one made of the settings that matter most."""
        if self.run_name:
            return self.run_name
        noise = f"eps{self.epsilon:g}" if self.noise_stddev is None else f"sigma{self.noise_stddev:g}"
        return f"{self.dataset}-{self.variant}-{self.channel}-{noise}-r{self.num_rounds}-seed{self.seed}"

    @classmethod
    def from_config(cls, config: Mapping[str, Any], given: Container[str] = ()) -> Settings:
        """Settings from flat `kebab-case` keys, the preset applied to every key that has its default value.

        Args:
            given: keys that the preset leaves alone even at their default, where a caller knows what was given.

        Raises:
            ValueError: unknown key, wrong type, or value out of range, naming the setting.
        """
        specs = {key_of(spec.name): spec for spec in dataclasses.fields(cls)}
        values: dict[str, Any] = {}
        for key, value in config.items():
            if key not in specs:
                raise ValueError(f"Unknown setting {key!r}. `papfl settings` lists those that exist.")
            spec = specs[key]
            if spec.metadata["kind"] == "float" and value == AUTO and spec.default is None:
                value = None
            elif spec.metadata["kind"] == "float" and isinstance(value, int) and not isinstance(value, bool):
                value = float(value)
            values[spec.name] = value
        preset = values.get("preset", cls.preset)
        if isinstance(preset, str) and preset in PRESETS:
            left = {key for key, spec in specs.items() if values.get(spec.name, spec.default) == spec.default}
            chosen = {key: value for key, value in PRESETS[preset].items() if key in left and key not in given}
            values |= {specs[key].name: value for key, value in chosen.items() if value != TRAIN_RECORDS}
            counts = [specs[key].name for key, value in chosen.items() if value == TRAIN_RECORDS]
            if counts:
                # Checked without them first: they follow from settings that must be valid.
                records = cls(**{**values, **dict.fromkeys(counts, 1)}).train_records
                values |= dict.fromkeys(counts, records)
        return cls(**values)

    def to_config(self) -> dict[str, Any]:
        """Flat `kebab-case` keys, "auto" for None: `from_config` gives the same settings back.

        The preset is "paper", which changes nothing: its values are resolved already.
        """
        values = {**dataclasses.asdict(self), "preset": "paper"}
        return {key_of(name): AUTO if value is None else value for name, value in values.items()}

    def changed(self) -> dict[str, Any]:
        """The part of `to_config` that differs from the defaults."""
        defaults = Settings().to_config()
        return {key: value for key, value in self.to_config().items() if value != defaults[key]}

    def digest(self) -> str:
        """Hash of the settings that decide a result (not of where it is written or shown).

        Settings at their default do not enter: a setting that is added later leaves the hashes of earlier results
        alone. Whoever changes a default raises `common.numerics.NUMERICS_VERSION`.
        """
        outside = {
            "run-name",
            "out-dir",
            "data-dir",
            "resume",
            "task",
            "require-future",
            "tensorboard",
            "checkpoint-every",
            "round-timeout",
            "federation-timeout",
            "replay-gains",  # named by the run that they come from
        }
        kept = {key: value for key, value in self.changed().items() if key not in outside}
        return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()
