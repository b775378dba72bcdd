"""Result files for tests of what reads them."""


def record(seen, future, seed=41, **settings):
    """A result file as `records.record_of` writes it, with the numbers that matter to a report."""
    changed = {key.replace("_", "-"): value for key, value in settings.items()}
    return {
        "settings": {**changed, **({} if seed == 41 else {"seed": seed}), "deterministic": True},
        "numerics": {"numerics_version": 2, "torch": "2", "cpu": "test"},
        "privacy": {"guarantee": "none", "epsilon": 16.0, "outside_epsilon": ["looking"]},
        "noise": {"norm": 1.9},
        "accuracy": {"seen": seen, "future": future, "per_client": {"0": seen, "40": future}},
        "evaluations": [{"round": 100, "seen": seen, "future": future}],
        "references": {"chance": 0.1, "commonest_label": {"seen": 0.4, "future": 0.35}},
        "uplink": {"messages": 1000, "message_bytes": 65_000_000, "bits_per_coordinate": 32.0},
        "traces": {"hidden_norm_squared": [1.0, 2.0], "hidden_alignment": [0.9, 0.8]},
        "gains": [[1.0], [0.5, 1.0]],
        "milliseconds": {"gradient_ms": 100.0, "encode_ms": 1.0, "decode_ms": 0.5},
        "cpu_seconds": 1.0,
    }
