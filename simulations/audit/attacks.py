"""Which of its two records stands at a canary's position? Scores, positive for "present".

The adversary knows everything but the coins: all other records, both records of every canary, the model of every round.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from client_app.workspace import Workspace
from common.data.records import ClientRecords
from common.data.splits import Split, split
from simulations.audit.canaries import Canaries
from simulations.audit.run import Release, Transcript


def white_box(transcript: Transcript) -> np.ndarray:
    """From all decoded releases, context and gradients: (m,) scores, clients in order.

    With coins x ∈ {-½, ½}, a client's releases are known + D x + Gaussian noise of known size, where a column of D is the
    difference that one canary makes. The scores are the linear least-squares estimate of all x together.
    """
    scores = []
    for client, canaries in enumerate(transcript.records.canaries):
        parts = [_context_part(transcript, client, canaries)]
        parts += [_gradient_part(transcript, canaries, seen) for seen in transcript.releases if seen.client == client]
        differences = np.concatenate([difference for difference, _ in parts], axis=1)
        residuals = np.concatenate([residual for _, residual in parts])
        # x has variance 1/4, the noise in these units 1.
        gram = differences @ differences.T + 4.0 * np.eye(len(differences))
        scores.append(np.linalg.solve(gram, differences @ residuals))
    return np.concatenate(scores)


def black_box(transcript: Transcript) -> np.ndarray:
    """From the finished personal models alone: how much less their loss is on the one record than on the other, (m,)."""
    scores = []
    for client, canaries in enumerate(transcript.records.canaries):
        theta = transcript.space.theta(torch.tensor(transcript.final[client], device=transcript.space.model.device))
        transcript.space.model.load(theta)
        scores.append(_losses(transcript.space, canaries.absent) - _losses(transcript.space, canaries.present))
    return np.concatenate(scores)


def coins(transcript: Transcript) -> np.ndarray:
    """The truth, in the order of the scores."""
    return np.concatenate([canaries.coins for canaries in transcript.records.canaries])


def _losses(space: Workspace, records: ClientRecords) -> np.ndarray:
    inputs, labels = records.tensors(np.arange(len(records)), space.shift, space.scale, space.model.device)
    with torch.no_grad():
        losses: np.ndarray = F.cross_entropy(space.model(inputs), labels, reduction="none").double().cpu().numpy()
    return losses


def _gradient_part(transcript: Transcript, canaries: Canaries, release: Release) -> tuple[np.ndarray, np.ndarray]:
    """What every canary changes in a gradient release (c, k), and the release less all that is known (k,); in units of σ_g.

    Batches are full: every training record is in every release.
    """
    space = transcript.space
    settings, noise = space.settings, space.rules.mechanism.channel_noise(0, 1)
    theta = space.theta(torch.tensor(release.coefficients, device=space.model.device))
    others = np.setdiff1d(_split(transcript, release.client).train, canaries.positions)

    def rows(records: ClientRecords, positions: np.ndarray) -> np.ndarray:
        inputs, labels = records.tensors(positions, space.shift, space.scale, space.model.device)
        clipped = space.gradients.clipped_rows(theta, inputs, labels, clip_norm=settings.clip_norm)
        values: np.ndarray = clipped.double().cpu().numpy()
        return values

    every = np.arange(len(canaries.coins))
    present, absent = rows(canaries.present, every), rows(canaries.absent, every)
    known = (present + absent).sum(axis=0) / 2
    if len(others):
        known = known + rows(transcript.records.records(release.client), others).sum(axis=0)
    scale = settings.batch_records * noise
    return (present - absent) / scale, release.update / noise - known / scale


def _context_part(transcript: Transcript, client: int, canaries: Canaries) -> tuple[np.ndarray, np.ndarray]:
    """The same for the client's context: (c, 2s) and (2s,), in units of σ_c."""
    rules = transcript.space.rules
    context, phi = _split(transcript, client).context, rules.context_map.phi
    inside = np.isin(canaries.positions, context)[:, None]
    present, absent = phi(canaries.present.images) * inside, phi(canaries.absent.images) * inside
    known = (present + absent).sum(axis=0) / 2
    others = np.setdiff1d(context, canaries.positions)
    if len(others):
        known = known + phi(transcript.records.records(client).images[others]).sum(axis=0)
    noise = rules.mechanism.channel_noise(0, 0)
    scale = rules.settings.context_records * noise
    return (present - absent) / scale, transcript.contexts[client] / noise - known / scale


def _split(transcript: Transcript, client: int) -> Split:
    settings = transcript.space.settings
    return split(settings, client, settings.records_per_client)
