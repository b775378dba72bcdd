"""Model, context, generator."""

from __future__ import annotations

from dataclasses import dataclass

from common.settings.fields import choice_field, flag_field, float_field, int_field, text_field


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """Personal model and coefficient space."""

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


@dataclass(frozen=True, kw_only=True)
class ContextSettings:
    """Private context."""

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


@dataclass(frozen=True, kw_only=True)
class GeneratorSettings:
    """Generator and its optimiser (on the server)."""

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
