"""The bugs: what is wrong, the edit that makes it so, and the tests of which at least one must catch it."""

from __future__ import annotations

from dataclasses import dataclass

GRADIENTS = "client_app/gradients.py"
CODEC = "common/channel/lrsuq/codec.py"
DG = "common/channel/dg.py"
PLAN = "common/privacy/plan.py"
REPORT = "common/privacy/report.py"
STRATEGY = "server_app/strategy.py"
CLIENT = "client_app/client.py"


@dataclass(frozen=True)
class Bug:
    """One planted defect.

    Attributes:
        name: what is wrong.
        edits: (file, text that stands there once, text instead).
        tests: pytest ids; `caught` means that one of them fails.
    """

    name: str
    edits: tuple[tuple[str, str, str], ...]
    tests: tuple[str, ...]


def bug(name: str, file: str, before: str, after: str, *tests: str) -> Bug:
    """A defect of one edit."""
    return Bug(name, ((file, before, after),), tests)


BUGS: tuple[Bug, ...] = (
    bug(
        "denominator is the number of usable records",
        GRADIENTS,
        "gradient=total / denominator,",
        "gradient=total / max(1, len(inputs) - nonfinite),",
        "tests/client_app/test_gradients.py::test_bad_records_contribute_zero_and_are_counted",
    ),
    bug(
        "denominator is the drawn size",
        GRADIENTS,
        "gradient=total / denominator,",
        "gradient=total / max(1, len(inputs)),",
        "tests/client_app/test_gradients.py::test_clip_is_joint_per_record_and_the_denominator_is_fixed",
    ),
    bug(
        "clip by part of the vector instead of jointly",
        GRADIENTS,
        "    usable = torch.isfinite(norms)\n",
        "    parts = rows.split(rows.shape[1] // 2, dim=1)\n"
        "    rows[:] = torch.cat([p * torch.clamp(bound / p.norm(dim=1, keepdim=True), max=1.0) for p in parts], dim=1)\n"
        "    norms = torch.linalg.vector_norm(rows.double(), dim=1).clamp_max(bound)\n    usable = torch.isfinite(norms)\n",
        "tests/client_app/test_gradients.py::test_clip_is_joint_per_record_and_the_denominator_is_fixed",
    ),
    Bug(
        "clip after averaging",
        (
            (GRADIENTS, "            _add(total, rows, weights)\n", "            total += rows.sum(0)\n"),
            (
                GRADIENTS,
                "gradient=total / denominator,",
                "gradient=total / denominator * min(1.0, bound / max(1e-30, float((total / denominator).norm()))),",
            ),
        ),
        ("tests/client_app/test_gradients.py::test_replacing_one_record_moves_the_result_by_at_most_the_sensitivity",),
    ),
    bug(
        "no clip at all",
        GRADIENTS,
        "    weights = torch.clamp(bound / norms.clamp_min(torch.finfo(norms.dtype).tiny), max=1.0)\n"
        "    return norms, *_zeroed(rows, usable, weights)\n",
        "    weights = torch.ones_like(norms)\n    return norms, *_zeroed(rows, usable, weights)\n",
        "tests/client_app/test_sensitivity.py::test_gradient_release",
    ),
    bug(
        "norms are estimated in float32",
        GRADIENTS,
        "_kernels().norms(rows.numpy(), norms.numpy())",
        "norms = torch.linalg.vector_norm(rows, dim=1).double()",
        "tests/client_app/test_gradients.py::test_no_clipped_gradient_is_longer_than_the_bound",
    ),
    bug(
        "rounding of sums is forgotten",
        GRADIENTS,
        "_kernels().add(total.numpy(), rows.numpy(), weights.numpy())",
        "total += torch.mv(rows.t(), weights.float())",
        "tests/client_app/test_gradients.py::test_rounding_does_not_add_to_the_sensitivity",
    ),
    bug(
        "non-finite record passes",
        GRADIENTS,
        "usable = torch.isfinite(norms)",
        "usable = torch.ones_like(norms, dtype=torch.bool)",
        "tests/client_app/test_gradients.py::test_bad_records_contribute_zero_and_are_counted",
    ),
    bug(
        "non-finite record passes into the context",
        "common/context.py",
        "usable = np.asarray(np.isfinite(x).all(axis=(1, 2, 3)))",
        "usable = np.ones(len(x), dtype=bool)",
        "tests/client_app/test_sensitivity.py::test_context_release",
        "tests/common/test_context.py",
    ),
    bug(
        "context of values outside [0, 1]",
        "common/context.py",
        "x = np.clip(np.where(usable[:, None, None, None], x, 0.0), 0.0, 1.0)",
        "x = np.where(usable[:, None, None, None], x, 0.0)",
        "tests/client_app/test_sensitivity.py::test_context_release",
    ),
    bug(
        "noise drawn twice",
        DG,
        "return add_gaussian(values, event.noise_stddev,",
        'values = add_gaussian(values, event.noise_stddev, derive_key(keys.secret, "again"), exact=False)\n'
        "    return add_gaussian(values, event.noise_stddev,",
        "tests/common/channel/test_channels.py::test_noise_has_the_stated_standard_deviation",
    ),
    bug(
        "noise added again by the server",
        "server_app/receiver.py",
        "updates[client] = decoded.astype(np.float32)",
        "updates[client] = (decoded + noise * np.random.default_rng(client).standard_normal(k)).astype(np.float32)",
        "tests/server_app/test_strategy.py::test_what_is_applied_is_the_clients_release_and_nothing_else",
    ),
    bug(
        "no noise",
        DG,
        "return add_gaussian(values, event.noise_stddev,",
        "return add_gaussian(values, 0.0,",
        "tests/common/channel/test_channels.py::test_noise_has_the_stated_standard_deviation",
    ),
    bug(
        "the tail of DG's noise has gaps",
        "common/gaussian.py",
        "    if len(open_):\n",
        "    if False:\n",
        "tests/common/test_gaussian.py::test_the_tail_has_no_gaps",
    ),
    bug(
        "secret noise is rounded like public noise",
        DG,
        "exact=not keys.public)",
        "exact=False)",
        "tests/common/channel/test_channels.py::test_secret_noise_is_exactly_rounded",
    ),
    Bug(
        "an absolute tolerance overspends a tiny budget",
        (
            ("common/privacy/accountant.py", "tolerance = 1e-15 * min(1.0, 1e3 * low)", "tolerance = 1e-15"),
            ("common/privacy/accountant.py", "if delta_of(root) <= delta * (1.0 + _RESOLUTION):", "if True:"),
        ),
        ("tests/common/privacy/test_accountant.py::test_the_exact_accountant_never_overspends",),
    ),
    bug(
        "context released without noise",
        CLIENT,
        "ChannelEvent(run, round, self._client, k, noise), keys)",
        "ChannelEvent(run, round, self._client, k, noise if round else 0.0), keys)",
        "tests/client_app/test_client.py::test_context_is_equation_2_plus_seeded_noise",
    ),
    bug(
        "sigma 2 % too small, by calibration",
        PLAN,
        "noise_stddev = math.sqrt(unit_cost / accountant.rho(settings.epsilon, settings.delta))",
        "noise_stddev = 0.98 * math.sqrt(unit_cost / accountant.rho(settings.epsilon, settings.delta))",
        "tests/common/privacy/test_plan.py::test_calibrated_noise_spends_exactly_the_budget",
    ),
    bug(
        "sigma 2 % too small, in DG",
        DG,
        "return add_gaussian(values, event.noise_stddev,",
        "return add_gaussian(values, 0.98 * event.noise_stddev,",
        "tests/common/channel/test_channels.py::test_noise_has_the_stated_standard_deviation",
    ),
    bug(
        "sigma 2 % too small, in LRSUQ",
        CODEC,
        'sigma = number("noise_stddev", noise_stddev, above=0.0)',
        'sigma = 0.98 * number("noise_stddev", noise_stddev, above=0.0)',
        "tests/common/channel/test_exactness.py::test_decoded_error_is_gaussian_and_independent_of_the_update",
    ),
    bug(
        "sensitivity C/m instead of 2 C/m (records are replaced, not removed)",
        PLAN,
        "self.sensitivity = 2.0 * settings.clip_norm / settings.batch_records",
        "self.sensitivity = settings.clip_norm / settings.batch_records",
        "tests/common/privacy/test_plan.py::test_uniform_plan_is_equation_7",
    ),
    bug(
        "an event is not told from that of another round",
        "common/protocol.py",
        "|{client}|{round}|{noise_stddev!r}|",
        "|{client}|{noise_stddev!r}|",
        "tests/client_app/test_client.py::test_the_digest_of_an_event_depends_on_all_that_decides_the_update",
    ),
    bug(
        "key reused across rounds, deterministic",
        "common/keys.py",
        "seed_key(seed, noise, client, round),",
        "seed_key(seed, noise, client, 0),",
        "tests/client_app/test_client.py::test_no_two_events_share_a_key",
    ),
    bug(
        "key independent of what is released",
        "common/protocol.py",
        "hashlib.sha256(head + coefficients)",
        "hashlib.sha256(head)",
        "tests/client_app/test_client.py::test_same_round_with_another_request_is_refused",
    ),
    bug(
        "keys of an event that is committed twice are the same",
        CLIENT,
        "nonce=fresh_nonce())",
        "nonce=bytes(16))",
        "tests/client_app/test_client.py::test_noise_never_repeats_where_a_ledger_was_restored",
    ),
    bug(
        "dither fresh at the decoder",
        CODEC,
        'unit = KeyStream(derive_key(key, "lrsuq")).unit(words)',
        'unit = KeyStream(derive_key(key, "lrsuq" if encoding else "fresh")).unit(words)',
        "tests/common/channel/test_exactness.py::test_decoded_error_is_gaussian_and_independent_of_the_update",
    ),
    bug(
        "releases counted as planned instead of as made",
        REPORT,
        "client: client_epsilon(ledger, client, settings)",
        "client: settings.epsilon",
        "tests/common/privacy/test_plan.py::test_future_clients_pay_for_their_context_alone",
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
        "accountant rebuilt each round",
        REPORT,
        "worst_record_rho(ledger.of(client))",
        "worst_record_rho(ledger.of(client)[-1:])",
        "tests/common/privacy/test_plan.py::test_calibrated_noise_spends_exactly_the_budget",
    ),
    bug(
        "accountant rebuilt each round, in the client's own budget",
        "client_app/policy.py",
        "accountant.epsilon(worst_record_rho(events), delta)",
        "accountant.epsilon(worst_record_rho(events[-1:]), delta)",
        "tests/client_app/test_client.py::test_release_beyond_the_clients_own_budget_is_refused",
    ),
    Bug(
        "context released twice, in simulation",
        (
            ("client_app/ledger.py", "if not self._is_spent(run, round):", "if not self._is_spent(run, round) or round == 0:"),
            ("client_app/ledger.py", "if self._is_spent(run, event.round):", "if event.round and self._is_spent(run, event.round):"),
        ),
        ("tests/client_app/test_client.py::test_context_is_released_once",),
    ),
    Bug(
        "context released twice, by the durable ledger",
        (
            ("client_app/sqlite_ledger.py", "    UNIQUE (run, round)\n", "    UNIQUE (id)\n"),
            ("client_app/sqlite_ledger.py", "if found is None:", "if found is None or round == 0:"),
            ("client_app/sqlite_ledger.py", "spent.round == event.round for name", "spent.round == event.round > 0 for name"),
        ),
        ("tests/client_app/test_sqlite_ledger.py::test_a_repeated_request_gets_the_same_bytes_and_a_changed_one_is_refused",),
    ),
    bug(
        "a release is computed before it is spent",
        CLIENT,
        "self._ledger.commit(run, digest, self._booked(round), partial(self._policy.check, self._rules))\n"
        "        update = compute()\n",
        "update = compute()\n"
        "        self._ledger.commit(run, digest, self._booked(round), partial(self._policy.check, self._rules))\n",
        "tests/client_app/test_client.py::test_event_that_was_committed_and_lost_stays_spent",
    ),
    bug(
        "batch chosen by label",
        CLIENT,
        "positions = batch(self._settings, self._client, round, participation, self._split.train)",
        "labels = self._space.records(self._client).labels[self._split.train]\n"
        '            positions = self._split.train[np.argsort(labels, kind="stable")][: self._settings.batch_records]',
        "tests/client_app/test_sensitivity.py::test_which_records_are_in_a_batch_is_public",
    ),
    bug(
        "positions follow the order of files",
        "client_app/manifest.py",
        "return [int(index) for index in np.argsort(words)]",
        "return list(range(count))",
        "tests/client_app/test_manifest.py::test_the_order_is_uniformly_random",
    ),
    bug(
        "positions are drawn anew for every message",
        "client_app/manifest.py",
        "known = read_manifest(file) if file.exists() else None",
        "known = None",
        "tests/client_app/test_manifest.py::test_one_changed_label_moves_no_other_record",
    ),
    bug(
        "a record is known by its row",
        "client_app/manifest.py",
        "index = np.array([rows[held[-1]].pop() for held in manifest.positions])",
        "index = np.arange(len(digests))",
        "tests/client_app/test_manifest.py::test_reordered_rows_are_the_same_records",
    ),
    bug(
        "a record that moves leaves behind what it has paid",
        "client_app/manifest.py",
        "if elsewhere & set(map(_subject, new)) else known.order",
        "if False else known.order",
        "tests/client_app/test_own_records.py::test_a_record_that_moves_is_booked_at_whole_client_cost_and_the_run_ends_there",
    ),
    bug(
        "positions of different orders are compared",
        "common/privacy/accountant.py",
        "comparable = len({event.order for event in events if event.records is not None}) < 2",
        "comparable = True",
        "tests/client_app/test_own_records.py::test_a_new_manifest_over_an_old_ledger_compares_no_positions",
    ),
    bug(
        "one bad record refuses everything",
        "common/data/own.py",
        "    return _without(images, y.astype(np.int64), wrong_value | wrong_label, problems)\n",
        "    if problems:\n        raise DataError(problems[0])\n"
        "    return _without(images, y.astype(np.int64), wrong_value | wrong_label, problems)\n",
        "tests/common/data/test_own.py::test_a_record_that_cannot_be_used_is_no_reason_to_refuse",
    ),
    bug(
        "one holder under two numbers is served",
        "server_app/federation.py",
        "if len(clients) > 1]",
        "if len(clients) > 99]",
        "tests/server_app/test_strategy.py::test_one_holder_under_two_numbers_ends_the_run_before_anything_is_spent",
    ),
    bug(
        "a limit on delta is forgotten where there is no budget",
        "client_app/policy.py",
        "if settings.delta > self.delta:",
        "if math.isfinite(self.budget) and settings.delta > self.delta:",
        "tests/client_app/test_client.py::test_a_limit_on_delta_holds_without_a_budget",
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
        "tests/server_app/test_strategy.py::test_lengths_and_times_are_recorded_only_where_diagnostics_are_shared",
    ),
    bug(
        "NaN passes as a number",
        "common/validation.py",
        "if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):",
        "if isinstance(value, float) and math.isnan(value):\n        return value\n"
        "    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):",
        "tests/common/privacy/test_accountant.py::test_bad_delta_is_refused",
        "tests/common/privacy/test_accountant.py::test_bad_events_are_refused_by_name",
    ),
    bug(
        "bool passes as a number",
        "common/validation.py",
        "if isinstance(value, bool) or not isinstance(value, Real) or",
        "if not isinstance(value, Real) or",
        "tests/common/privacy/test_accountant.py::test_bad_rho_is_refused",
    ),
    bug(
        "the server's word is taken for the noise",
        CLIENT,
        "if not isinstance(asked, float) or not abs(asked - planned) <= 1e-9 * planned:",
        "if not isinstance(asked, float):",
        "tests/client_app/test_client.py::test_requests_that_the_public_plan_does_not_say_are_refused",
    ),
    bug(
        "public noise booked as protection",
        CLIENT,
        "return dataclasses.replace(event, noise_stddev=0.0) if self._settings.deterministic else event",
        "return event",
        "tests/client_app/test_client.py::test_public_noise_is_booked_as_none",
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
        "a request is served whatever it says of the server's noise",
        CLIENT,
        "for name, planned in self._rules.mechanism.terms(self._client, round).items():",
        'for name, planned in (("noise-stddev", self._rules.mechanism.channel_noise(self._client, round)),):',
        "tests/common/privacy/test_mechanism.py::test_a_request_with_other_terms_is_refused",
    ),
    bug(
        "a message of another event is accepted",
        "common/channel/wire.py",
        "if not hmac.compare_digest(",
        "if False and not hmac.compare_digest(",
        "tests/common/channel/test_channels.py::test_every_flipped_byte_is_an_error",
    ),
    bug(
        "exception text leaves the client",
        "client_app/app.py",
        'log.exception("request failed")\n        return Message(Error(int(Refusal.INTERNAL)), reply_to=message)',
        'import traceback\n        return Message(Error(int(Refusal.INTERNAL), traceback.format_exc()), reply_to=message)',
        "tests/server_app/test_strategy.py::test_an_unforeseen_error_leaves_as_a_code_too",
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
    bug(
        "a changed digit or a lost row of a ledger is accepted",
        "client_app/sqlite_ledger.py",
        "if seal != _seal(before, run, round, digest, event):",
        "if False:",
        "tests/client_app/test_sqlite_ledger.py::test_a_ledger_that_says_something_else_is_refused",
    ),
)  # fmt: skip
