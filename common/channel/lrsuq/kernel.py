"""The compiled codec: encoder and decoder are the same loop, told apart by one flag.

Everything both sides must agree on uses only + - * / sqrt floor, comparisons and table look-ups, all exactly rounded by
IEEE 754, and integer arithmetic in the range coder. No transcendental function of NumPy or libm, no fused
multiply-add, no fast-math: otherwise one differing last bit would turn a message into garbage.

`common.compiled` compiles a copy of this file from a stable place, together with the range coder.
"""

import numpy as np
from numba import njit

from common.channel.lrsuq.range_coder import FULL, STATE_SIZE, code_bit, code_escape, code_integer, end, start
from common.channel.lrsuq.status import BUFFER_FULL, MORE_RANDOMNESS, TOO_MANY_TRIALS

RHO2 = 0.5  # squared packing radius of D4: the ball that the accepted error fills
RHO = 0.7071067811865476
ACCEPT16 = 40428  # acceptance probability pi^2/16 in units of 2^-16
MAX_TRIALS = 64
HIGH_RATE = 0.3  # scale of u, in units where the ball has radius RHO, from which coordinates are coded by bins
UPDATE_ABOVE = (
    0.2  # a "no" where "yes" was less likely than this is not worth a step of the belief: bytes grew with more
)
MAX_CANDIDATES = 128

# Tables: value at z = -Z_MAX + i / Z_STEPS, linear in between.
Z_MAX = 9.0
Z_STEPS = 32.0
TABLE_SIZE = 577


@njit(cache=True)
def _look(table, z):
    """Linear interpolation of a table in z."""
    if z <= -Z_MAX:
        return table[0]
    if z >= Z_MAX:
        return table[TABLE_SIZE - 1]
    position = (z + Z_MAX) * Z_STEPS
    index = int(position)
    fraction = position - index
    return table[index] + fraction * (table[index + 1] - table[index])


@njit(cache=True)
def _to16(p):
    return min(max(int(p * 65536.0), 1), 65535)


@njit(cache=True)
def _bin(encoding, state, buffer, cdf, origin, width, scale, value):
    """An integer j whose bin [origin + (j ± 1/2) width] holds a variable of the given scale; nearest bins first."""
    shift = 0
    while scale > 3.0 * width:
        # Wide distributions: the low bits are as good as uniform.
        origin += 0.5 * width
        width *= 2.0
        shift += 1
    low = value & ((1 << shift) - 1)
    high = value >> shift
    step = np.floor(0.5 - origin / width)
    center = origin + step * width
    first = int(step)
    direction = -1 if center > 0.0 else 1
    remaining = 1.0
    found = False
    result = first
    for n in range(16):
        offset = (n + 1) // 2 if n % 2 == 1 else -(n // 2)
        j = first + direction * offset
        middle = origin + j * width
        mass = _look(cdf, (middle + 0.5 * width) / scale) - _look(cdf, (middle - 0.5 * width) / scale)
        p = mass / remaining if remaining > 1e-9 else 0.5
        if code_bit(encoding, state, buffer, _to16(p), 1 if j == high else 0) == 1:
            result = j
            found = True
            break
        remaining -= mass
    if not found:
        result = first + code_integer(encoding, state, buffer, high - first)
    for index in range(shift - 1, -1, -1):
        result = (result << 1) | code_bit(encoding, state, buffer, 32768, (low >> index) & 1)
    return result


@njit(cache=True)
def _log(x):
    """Natural logarithm of 0 < x <= 1 by exactly rounded operations; relative error below 1e-15."""
    exponent = 0
    while x < 0.7071067811865476:
        x *= 2.0
        exponent += 1
    s = (x - 1.0) / (x + 1.0)
    q = s * s
    series = 1.0 / 23.0
    for odd in range(21, 0, -2):
        series = series * q + 1.0 / odd
    return 2.0 * s * series - exponent * 0.6931471805599453


@njit(cache=True)
def _radius4(unit, position):
    """sqrt(chi^2 with 6 degrees of freedom): three exponentials, one logarithm of their product."""
    product = (1.0 - unit[position]) * (1.0 - unit[position + 1]) * (1.0 - unit[position + 2])
    return np.sqrt(-2.0 * _log(product))


@njit(cache=True)
def _project(cov, n, cn, d2):
    """Scale n (of squared length d2) to a unit vector and set cn = C n; returns n^T C n and the trace across n."""
    trace = cov[0, 0] + cov[1, 1] + cov[2, 2] + cov[3, 3]
    d = np.sqrt(d2)
    if d <= 1e-12:
        for i in range(4):
            cn[i] = 0.0
        return 0.25 * trace, 0.75 * trace
    variance = 0.0
    for i in range(4):
        n[i] /= d
    for i in range(4):
        cn[i] = cov[i, 0] * n[0] + cov[i, 1] * n[1] + cov[i, 2] * n[2] + cov[i, 3] * n[3]
        variance += n[i] * cn[i]
    return variance, trace - variance


@njit(cache=True)
def lrsuq4(encoding, update, decoded, sigma, scales, unit, max_trials, buffer, cdf, hazard, shrink, z_cut):
    """Blocks of four on D4.

    update (k,): input of the encoder (k a multiple of 4). decoded (k,): output of both. scales (k,): assumed standard
    deviation of each coordinate. unit: uniform numbers in [0, 1). buffer: bytes out or in. cdf, hazard, shrink: tables
    of the model class. Returns (status, bytes).
    """
    state = np.zeros(STATE_SIZE, dtype=np.int64)
    start(encoding, state, buffer)
    x = np.empty((MAX_CANDIDATES, 4))
    z = np.empty((MAX_CANDIDATES, 4), dtype=np.int64)
    distance2 = np.empty(MAX_CANDIDATES)
    order = np.empty(MAX_CANDIDATES, dtype=np.int64)
    w = np.empty(4)
    y = np.empty(4)
    nearest = np.empty(4, dtype=np.int64)
    mean = np.empty(4)
    cov = np.empty((4, 4))
    n = np.empty(4)
    cn = np.empty(4)
    lows = np.empty(4, dtype=np.int64)
    highs = np.empty(4, dtype=np.int64)
    position = 0
    trials = 0
    for block in range(0, len(decoded), 4):
        if position + 3 + 4 > len(unit):
            return MORE_RANDOMNESS, 0
        radius = sigma * _radius4(unit, position)
        position += 3
        to_ball = RHO / radius
        from_ball = radius / RHO
        largest = 0.0
        smallest = np.inf
        for i in range(4):
            mean[i] = 0.0
            t = scales[block + i] * to_ball
            largest = max(largest, t)
            smallest = min(smallest, t)
            for j in range(4):
                cov[i, j] = 0.0
            cov[i, i] = t * t
        # Until a "no" teaches something, the belief is N(0, t^2 I): its projections need no matrix.
        fresh = largest == smallest
        # Far candidates are worth a visit only while there are few of them.
        cut = z_cut - 2.0 * largest
        done = False
        for _ in range(MAX_TRIALS):
            trials += 1
            if trials > max_trials:
                return TOO_MANY_TRIALS, 0
            if position + 4 > len(unit):
                return MORE_RANDOMNESS, 0
            # A uniform point of R^4 / D4: three coordinates modulo 1, the last modulo 2.
            w[0] = unit[position]
            w[1] = unit[position + 1]
            w[2] = unit[position + 2]
            w[3] = 2.0 * unit[position + 3]
            position += 4
            accepted = 0
            if encoding or largest == 0.0:
                # Nearest coset point z + w to u, z in D4: round, and mend the parity where it costs least.
                parity = 0
                worst, worst_gap = 0, -1.0
                for i in range(4):
                    y[i] = (update[block + i] * to_ball if largest > 0.0 else 0.0) - w[i]
                    rounded = np.floor(y[i] + 0.5)
                    nearest[i] = int(rounded)
                    parity += nearest[i] & 1
                    gap = abs(y[i] - rounded)
                    if gap > worst_gap:
                        worst, worst_gap = i, gap
                if parity & 1:
                    nearest[worst] += 1 if y[worst] > nearest[worst] else -1
                error2 = 0.0
                for i in range(4):
                    gap = y[i] - nearest[i]
                    error2 += gap * gap
                accepted = 1 if error2 <= RHO2 else 0
            if largest == 0.0:
                # An update that both sides know to be zero: nothing to say.
                if accepted == 0:
                    continue
                done = True
            elif largest >= HIGH_RATE:
                if code_bit(encoding, state, buffer, ACCEPT16, accepted) == 0:
                    continue
                parity = 0
                for i in range(3):
                    t2 = cov[i, i] + 1.0 / 12.0
                    nearest[i] = _bin(encoding, state, buffer, cdf, w[i], 1.0, np.sqrt(t2), nearest[i])
                    parity += nearest[i] & 1
                parity &= 1
                t2 = cov[3, 3] + 1.0 / 12.0
                half = (nearest[3] - parity) >> 1
                half = _bin(encoding, state, buffer, cdf, w[3] + parity, 2.0, np.sqrt(t2), half)
                nearest[3] = 2 * half + parity
                done = True
            else:
                # Candidates: coset points so near the prediction that u may lie in their ball.
                reach = RHO + cut * largest
                reach2 = reach * reach
                count = 0
                for i in range(4):
                    lows[i] = int(np.ceil(mean[i] - reach - w[i]))
                    highs[i] = int(np.floor(mean[i] + reach - w[i]))
                for z0 in range(lows[0], highs[0] + 1):
                    g0 = z0 + w[0] - mean[0]
                    r0 = g0 * g0
                    if r0 > reach2:
                        continue
                    for z1 in range(lows[1], highs[1] + 1):
                        g1 = z1 + w[1] - mean[1]
                        r1 = r0 + g1 * g1
                        if r1 > reach2:
                            continue
                        for z2 in range(lows[2], highs[2] + 1):
                            g2 = z2 + w[2] - mean[2]
                            r2 = r1 + g2 * g2
                            if r2 > reach2:
                                continue
                            z3 = lows[3]
                            if (z0 + z1 + z2 + z3) & 1:
                                z3 += 1
                            while z3 <= highs[3]:
                                g3 = z3 + w[3] - mean[3]
                                r3 = r2 + g3 * g3
                                if r3 <= reach2 and count < MAX_CANDIDATES:
                                    z[count, 0], z[count, 1], z[count, 2], z[count, 3] = z0, z1, z2, z3
                                    x[count, 0], x[count, 1] = z0 + w[0], z1 + w[1]
                                    x[count, 2], x[count, 3] = z2 + w[2], z3 + w[3]
                                    distance2[count] = r3
                                    slot = count
                                    while slot > 0 and distance2[order[slot - 1]] > r3:
                                        order[slot] = order[slot - 1]
                                        slot -= 1
                                    order[slot] = count
                                    count += 1
                                z3 += 2
                for slot in range(count):
                    c = order[slot]
                    if fresh:
                        d2 = distance2[c]
                        variance = cov[0, 0]
                        trace = 3.0 * variance
                    else:
                        d2 = 0.0
                        for i in range(4):
                            n[i] = x[c, i] - mean[i]
                            d2 += n[i] * n[i]
                        variance, trace = _project(cov, n, cn, d2)
                    if variance <= 0.0:
                        score = Z_MAX if d2 <= RHO2 else -Z_MAX
                    else:
                        score = (RHO - np.sqrt(d2 + trace)) / np.sqrt(variance)
                    if score < -cut:
                        continue
                    p = _look(cdf, score)
                    bit = 0
                    if encoding and accepted == 1:
                        bit = 1
                        for i in range(4):
                            if z[c, i] != nearest[i]:
                                bit = 0
                    if code_bit(encoding, state, buffer, _to16(p), bit) == 1:
                        for i in range(4):
                            nearest[i] = z[c, i]
                        done = True
                        break
                    if p > UPDATE_ABOVE and variance > 0.0:
                        if fresh:
                            for i in range(4):
                                n[i] = x[c, i]
                            variance, trace = _project(cov, n, cn, d2)
                            fresh = False
                        # u lies on the far side of the ball's surface: one truncated-Gaussian step along n.
                        pull = _look(hazard, score) / np.sqrt(variance)
                        loss = _look(shrink, score) / variance
                        for i in range(4):
                            mean[i] -= pull * cn[i]
                            for j in range(4):
                                cov[i, j] -= loss * cn[i] * cn[j]
                if not done and code_escape(encoding, state, buffer, accepted) == 1:
                    parity = 0
                    for i in range(3):
                        guess = int(np.floor(0.5 - w[i]))
                        nearest[i] = guess + code_integer(encoding, state, buffer, nearest[i] - guess)
                        parity += nearest[i] & 1
                    parity &= 1
                    half = code_integer(encoding, state, buffer, (nearest[3] - parity) >> 1)
                    nearest[3] = 2 * half + parity
                    done = True
            if done:
                break
        if not done:
            return TOO_MANY_TRIALS, 0
        if state[FULL] == 1:
            return BUFFER_FULL, 0
        for i in range(4):
            decoded[block + i] = (nearest[i] + w[i]) * from_ball
    return end(encoding, state, buffer)


@njit(cache=True)
def lrsuq1(encoding, update, decoded, sigma, scales, unit, max_trials, buffer, cdf, hazard, shrink, z_cut):
    """Single coordinates: layered dither, R^2 ~ chi^2 with 3 degrees of freedom, no rejection. As `lrsuq4`."""
    state = np.zeros(STATE_SIZE, dtype=np.int64)
    start(encoding, state, buffer)
    position = 0
    for index in range(len(decoded)):
        # chi^2_3 = chi^2_2 + chi^2_2 cos^2(angle); the angle comes from a uniform point of the unit disc.
        inside = 2.0
        while inside > 1.0 or inside == 0.0:
            if position + 5 > len(unit):
                return MORE_RANDOMNESS, 0
            a = 2.0 * unit[position] - 1.0
            b = 2.0 * unit[position + 1] - 1.0
            position += 2
            inside = a * a + b * b
        first = _log(1.0 - unit[position])
        second = _log(1.0 - unit[position + 1])
        w = unit[position + 2]
        position += 3
        width = 2.0 * sigma * np.sqrt(-2.0 * (first + second * (a * a / inside)))
        value = 0
        if encoding:
            value = int(np.floor(update[index] / width - w + 0.5))
        scale = scales[index] / width
        if scale > 0.0:
            value = _bin(encoding, state, buffer, cdf, w, 1.0, scale, value)
        else:
            value = int(np.floor(0.5 - w))
        if state[FULL] == 1:
            return BUFFER_FULL, 0
        decoded[index] = (value + w) * width
    return end(encoding, state, buffer)
