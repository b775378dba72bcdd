"""What runs, on whom, on which data."""

from __future__ import annotations

from dataclasses import dataclass

from common.presets import PRESETS
from common.settings.fields import choice_field, flag_field, float_field, int_field, text_field


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """What to run, and where things go."""

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


@dataclass(frozen=True, kw_only=True)
class FederationSettings:
    """Who takes part."""

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


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Data and its partition."""

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
