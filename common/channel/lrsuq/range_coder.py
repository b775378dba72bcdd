"""The range coder: 32 bits with carry, binary decisions with 16-bit probabilities. Integers only.

Compiled into the kernel that uses it (see `kernel`), so nothing here is cached on its own.
"""

import numpy as np
from numba import njit

from common.channel.lrsuq.status import BUFFER_FULL, OK, TRAILING_BYTES

# Range coder state, an int64 array.
LOW, RANGE, CACHE, PENDING, POS, CODE, ESCAPE, LENGTH, STARTED, FULL = range(10)
STATE_SIZE = 10
_TOP = 1 << 24
_MASK32 = 0xFFFFFFFF


@njit
def _shift_low(state, buffer):
    low = state[LOW]
    if low < 0xFF000000 or low > _MASK32:
        carry = low >> 32
        if state[STARTED] == 1:
            if state[POS] + state[PENDING] + 1 > len(buffer):
                state[FULL] = 1
                return
            buffer[state[POS]] = (state[CACHE] + carry) & 0xFF
            state[POS] += 1
        for _ in range(state[PENDING]):
            buffer[state[POS]] = (0xFF + carry) & 0xFF
            state[POS] += 1
        state[PENDING] = 0
        state[STARTED] = 1
        state[CACHE] = (low >> 24) & 0xFF
    else:
        state[PENDING] += 1
    state[LOW] = (low & 0x00FFFFFF) << 8


@njit
def _next_byte(state, buffer):
    position = state[POS]
    state[POS] = position + 1
    if position < state[LENGTH]:
        return np.int64(buffer[position])
    return np.int64(0)  # stripped trailing zeros


@njit
def start(encoding, state, buffer):
    """Reset the state; a decoder takes its first four bytes."""
    state[:] = 0
    state[RANGE] = _MASK32
    state[ESCAPE] = 64
    if not encoding:
        state[LENGTH] = len(buffer)
        for _ in range(4):
            state[CODE] = (state[CODE] << 8) | _next_byte(state, buffer)


@njit
def code_bit(encoding, state, buffer, p, bit):
    """Code one decision; `p` of 65,536 is the probability of 1. Returns the decision."""
    bound = (state[RANGE] >> 16) * p
    if encoding:
        if bit == 1:
            state[RANGE] = bound
        else:
            state[LOW] += bound
            state[RANGE] -= bound
        while state[RANGE] < _TOP:
            state[RANGE] <<= 8
            _shift_low(state, buffer)
        return bit
    if state[CODE] < bound:
        state[RANGE] = bound
        bit = 1
    else:
        state[CODE] -= bound
        state[RANGE] -= bound
        bit = 0
    while state[RANGE] < _TOP:
        state[RANGE] <<= 8
        state[CODE] = ((state[CODE] << 8) | _next_byte(state, buffer)) & _MASK32
    return bit


@njit
def _finish(state, buffer):
    """Flush with the value of most trailing zeros and strip them: about one byte. Returns the length."""
    low, high = state[LOW], state[LOW] + state[RANGE] - 1
    for zeros in range(32, -1, -1):
        mask = (1 << zeros) - 1
        value = (low + mask) & ~mask
        if value <= high:
            state[LOW] = value
            break
    for _ in range(5):
        _shift_low(state, buffer)
    length = state[POS]
    while length > 0 and buffer[length - 1] == 0:
        length -= 1
    return length


@njit
def code_escape(encoding, state, buffer, bit):
    """The rare decision "a point that no candidate covers", with an adaptive probability."""
    bit = code_bit(encoding, state, buffer, state[ESCAPE], bit)
    if bit == 1:
        state[ESCAPE] += (65536 - state[ESCAPE]) >> 5
    else:
        state[ESCAPE] -= state[ESCAPE] >> 5
    state[ESCAPE] = min(max(state[ESCAPE], 4), 32768)
    return bit


@njit
def code_integer(encoding, state, buffer, value):
    """A signed integer below 2^56 in absolute value: sign, length, bits."""
    negative = 1 if value < 0 else 0
    negative = code_bit(encoding, state, buffer, 32768, negative)
    magnitude = -value if value < 0 else value
    length = 0
    while length < 56 and code_bit(encoding, state, buffer, 32768, 1 if magnitude >> length else 0) == 1:
        length += 1
    result = 0
    if length > 0:
        result = 1
        for shift in range(length - 2, -1, -1):
            result = (result << 1) | code_bit(encoding, state, buffer, 32768, (magnitude >> shift) & 1)
    return -result if negative == 1 else result


@njit
def end(encoding, state, buffer):
    """Flush (encoder) or refuse what was not needed (decoder). Returns (status, bytes)."""
    if encoding:
        length = _finish(state, buffer)
        if state[FULL] == 1:
            return BUFFER_FULL, 0
        return OK, length
    if state[POS] < state[LENGTH]:
        return TRAILING_BYTES, 0
    return OK, state[POS]
