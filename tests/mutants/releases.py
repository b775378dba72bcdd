"""What is released: clipping, noise, keys, messages. See `tests.mutants.bug`."""

from tests.mutants.bug import Bug, bug

GRADIENTS = "client_app/gradients.py"
CODEC = "common/channel/lrsuq/codec.py"
DG = "common/channel/dg.py"
CLIENT = "client_app/client.py"

BUGS: tuple[Bug, ...] = (
    bug(
        "denominator is the number of usable records",
        GRADIENTS,
        "gradient=self.total / denominator,",
        "gradient=self.total / max(1, count - self._nonfinite),",
        "tests/client_app/test_gradients.py::test_bad_records_contribute_zero_and_are_counted",
    ),
    bug(
        "denominator is the drawn size",
        GRADIENTS,
        "gradient=self.total / denominator,",
        "gradient=self.total / max(1, count),",
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
            (GRADIENTS, "            _add(tally.total, rows, weights)\n", "            tally.total += rows.sum(0)\n"),
            (
                GRADIENTS,
                "        return tally.result(len(inputs), denominator)\n",
                "        tally.total *= min(1.0, bound * denominator / max(1e-30, float(tally.total.norm())))\n"
                "        return tally.result(len(inputs), denominator)\n",
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
    bug(
        "context released without noise",
        CLIENT,
        "ChannelEvent(run, round, self._client, k, noise), keys)",
        "ChannelEvent(run, round, self._client, k, noise if round else 0.0), keys)",
        "tests/client_app/test_client.py::test_context_is_equation_2_plus_seeded_noise",
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
        "batch chosen by label",
        CLIENT,
        "positions = batch(self._settings, self._client, round, participation, self._split.train)",
        "labels = self._space.records(self._client).labels[self._split.train]\n"
        '            positions = self._split.train[np.argsort(labels, kind="stable")][: self._settings.batch_records]',
        "tests/client_app/test_sensitivity.py::test_which_records_are_in_a_batch_is_public",
    ),
    bug(
        "a message of another event is accepted",
        "common/channel/wire.py",
        "if not hmac.compare_digest(",
        "if False and not hmac.compare_digest(",
        "tests/common/channel/test_channels.py::test_every_flipped_byte_is_an_error",
    ),
    bug(
        "the norm of one block decides the clip of all",
        "client_app/kron_gradients.py",
        "torch.stack([part.norms_squared() for part in parts.values()]).sum(dim=0).sqrt()",
        "next(iter(parts.values())).norms_squared().sqrt()",
        "tests/client_app/test_kron_gradients.py::test_the_clip_is_joint_over_all_blocks_and_the_sum_is_of_clipped_rows",
    ),
    Bug(
        "blocks are summed before they are clipped",
        (
            ("client_app/kron_gradients.py", "part.weighted_sum(weights)\n", "part.weighted_sum(usable.double())\n"),
            (
                "client_app/kron_gradients.py",
                "        return tally.result(len(inputs), denominator)\n",
                "        tally.total *= min(1.0, bound * denominator / max(1e-30, float(tally.total.norm())))\n"
                "        return tally.result(len(inputs), denominator)\n",
            ),
        ),
        ("tests/client_app/test_kron_gradients.py::test_replacing_one_record_moves_the_sum_by_at_most_the_sensitivity",),
    ),
    bug(
        "a layer that is called twice counts twice as much",
        "client_app/kron_layers.py",
        "return Rows(torch.stack([part.rows() for part in parts]).sum(dim=0))",
        "return Rows(len(parts) * torch.stack([part.rows() for part in parts]).sum(dim=0))",
        "tests/client_app/test_kron_gradients.py::test_rows_are_projected_gradients",
    ),
)  # fmt: skip
