"""What is booked: accounting, ledgers, limits, checks of numbers. See `tests.mutants.bug`."""

from tests.mutants.bug import Bug, bug

PLAN = "common/privacy/plan.py"
REPORT = "common/privacy/report.py"
CLIENT = "client_app/client.py"

BUGS: tuple[Bug, ...] = (
    Bug(
        "an absolute tolerance overspends a tiny budget",
        (
            ("common/privacy/accountant.py", "tolerance = 1e-15 * min(1.0, 1e3 * low)", "tolerance = 1e-15"),
            ("common/privacy/accountant.py", "if delta_of(root) <= delta * (1.0 + _RESOLUTION):", "if True:"),
        ),
        ("tests/common/privacy/test_accountant.py::test_the_exact_accountant_never_overspends",),
    ),
    bug(
        "sigma 2 % too small, by calibration",
        PLAN,
        "noise_stddev = math.sqrt(unit_cost / accountant.rho(settings.epsilon, settings.delta))",
        "noise_stddev = 0.98 * math.sqrt(unit_cost / accountant.rho(settings.epsilon, settings.delta))",
        "tests/common/privacy/test_plan.py::test_calibrated_noise_spends_exactly_the_budget",
    ),
    bug(
        "sensitivity C/m instead of 2 C/m (records are replaced, not removed)",
        PLAN,
        "self.sensitivity = 2.0 * settings.clip_norm / settings.batch_records",
        "self.sensitivity = settings.clip_norm / settings.batch_records",
        "tests/common/privacy/test_plan.py::test_uniform_plan_is_equation_7",
    ),
    bug(
        "releases counted as planned instead of as made",
        REPORT,
        "client: client_epsilon(ledger, client, settings)",
        "client: settings.epsilon",
        "tests/common/privacy/test_plan.py::test_future_clients_pay_for_their_context_alone",
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
        "positions of different orders are compared",
        "common/privacy/accountant.py",
        "comparable = len({event.order for event in events if event.records is not None}) < 2",
        "comparable = True",
        "tests/client_app/test_own_records.py::test_a_new_manifest_over_an_old_ledger_compares_no_positions",
    ),
    bug(
        "a limit on delta is forgotten where there is no budget",
        "client_app/policy.py",
        "if settings.delta > self.delta:",
        "if math.isfinite(self.budget) and settings.delta > self.delta:",
        "tests/client_app/test_client.py::test_a_limit_on_delta_holds_without_a_budget",
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
        "a request is served whatever it says of the server's noise",
        CLIENT,
        "for name, planned in self._rules.mechanism.terms(self._client, round).items():",
        'for name, planned in (("noise-stddev", self._rules.mechanism.channel_noise(self._client, round)),):',
        "tests/common/privacy/test_mechanism.py::test_a_request_with_other_terms_is_refused",
    ),
    bug(
        "exception text leaves the client",
        "client_app/app.py",
        'log.exception("request failed")\n        return Message(Error(int(Refusal.INTERNAL)), reply_to=message)',
        'import traceback\n        return Message(Error(int(Refusal.INTERNAL), traceback.format_exc()), reply_to=message)',
        "tests/server_app/test_strategy.py::test_an_unforeseen_error_leaves_as_a_code_too",
    ),
    bug(
        "a changed digit or a lost row of a ledger is accepted",
        "client_app/sqlite_ledger.py",
        "if seal != _seal(before, run, round, digest, event):",
        "if False:",
        "tests/client_app/test_sqlite_ledger.py::test_a_ledger_that_says_something_else_is_refused",
    ),
)  # fmt: skip
