"""What the server does with what it gets, and what it keeps. See `tests.mutants.bug`."""

from tests.mutants.bug import Bug, bug

STRATEGY = "server_app/strategy.py"

BUGS: tuple[Bug, ...] = (
    bug(
        "noise added again by the server",
        "server_app/receiver.py",
        "updates[client] = decoded.astype(np.float32)",
        "updates[client] = (decoded + noise * np.random.default_rng(client).standard_normal(k)).astype(np.float32)",
        "tests/server_app/test_strategy.py::test_what_is_applied_is_the_clients_release_and_nothing_else",
    ),
    Bug(
        "only accepted releases counted",
        (
            (STRATEGY, "self.state.spend(server_round, clients)", "pass"),
            (
                STRATEGY,
                "self.state.accept(server_round, updates, self._row)",
                "self.state.spend(server_round, sorted(updates)); self.state.accept(server_round, updates, self._row)",
            ),
        ),
        ("tests/server_app/test_strategy.py::test_failed_client_goes_missing_with_uniform_weight_over_the_others",),
    ),
    bug(
        "one holder under two numbers is served",
        "server_app/federation.py",
        "if len(clients) > 1]",
        "if len(clients) > 99]",
        "tests/server_app/test_records_of_a_run.py::test_one_holder_under_two_numbers_ends_the_run_before_anything_is_spent",
    ),
    bug(
        "a server's ledger books public noise as protection",
        "server_app/summary.py",
        "if settings.deterministic else event",
        "if False else event",
        "tests/deployment/test_commands.py::test_a_deterministic_runs_ledger_books_no_protection",
    ),
    bug(
        "lengths of messages are recorded without diagnostics",
        STRATEGY,
        "if metrics.shared(collected, self.settings):",
        "if True:",
        "tests/server_app/test_records_of_a_run.py::test_lengths_and_times_are_recorded_only_where_diagnostics_are_shared",
    ),
    bug(
        "the server's own noise is missing",
        "server_app/state.py",
        "            if noise_key is not None:\n",
        "            if False:\n",
        "tests/common/privacy/test_mechanism.py::test_the_server_adds_its_noise_to_every_entry_of_the_aggregate",
    ),
    bug(
        "a resumed server draws its noise anew",
        "server_app/recovery.py",
        'key = bytes.fromhex(fact["noise_key"]) if "noise_key" in fact else None',
        'key = __import__("secrets").token_bytes(32) if "noise_key" in fact else None',
        "tests/common/privacy/test_mechanism.py::test_a_resumed_server_adds_the_same_noise_again",
    ),
    bug(
        "a lost or changed line of the journal is accepted",
        "server_app/journal.py",
        'if sealed(text, self._checksum) != line + b"\\n":',
        "if False:",
        "tests/server_app/test_recovery.py::test_a_folder_that_lost_a_part_is_not_resumed",
    ),
    bug(
        "a release is accepted that was never counted",
        "server_app/recovery.py",
        "not set(updates) <= state.ledger.spent_in(round)",
        "False",
        "tests/server_app/test_recovery.py::test_a_release_that_was_never_asked_for_is_not_accepted",
    ),
    bug(
        "a changed number in a checkpoint is accepted",
        "server_app/checkpoint.py",
        'if metadata.pop("seal", None) != _seal(tensors, metadata):',
        'if metadata.pop("seal", None) is None:',
        "tests/server_app/test_recovery.py::test_a_folder_that_lost_a_part_is_not_resumed",
    ),
)  # fmt: skip
