"""From bytes to structured input: every decision is read from the bytes, so that a fuzzer steers them."""

import json
import math
import struct


class Draw:
    """Reads decisions off `data`; zeros once it is used up."""

    def __init__(self, data):
        self._data, self._at = data, 0

    def bytes(self, n):
        part = self._data[self._at : self._at + n]
        self._at += n
        return part + bytes(n - len(part))

    def rest(self):
        part = self._data[self._at :]
        self._at = len(self._data)
        return part

    def number(self, below):
        return int.from_bytes(self.bytes(2), "little") % below

    def choice(self, options):
        return options[self.number(len(options))]

    def float(self):
        return self.choice(
            [0.0, -1.0, 1.0, 0.5, 1e-300, 1e300, math.nan, math.inf, -math.inf, struct.unpack("<d", self.bytes(8))[0]]
        )

    def integer(self):
        return self.choice(
            [0, 1, -1, 2, 3, 50, 2**31, 2**32, 2**63 - 1, -(2**63), struct.unpack("<q", self.bytes(8))[0]]
        )

    def scalar(self):
        """A value of any type that Flower's configurations carry."""
        kind = self.number(7)
        if kind == 0:
            return self.integer()
        if kind == 1:
            return self.float()
        if kind == 2:
            return self.choice([True, False])
        if kind == 3:
            return self.choice(["", "auto", "0", "public-data", "../x", "\0", "ω" * 50, self.bytes(8).decode("latin1")])
        if kind == 4:
            return self.bytes(self.choice([0, 1, 31, 32, 33, 200]))
        if kind == 5:
            return [self.integer() for _ in range(self.number(4))]
        return [self.float() for _ in range(self.number(4))]


def mutate(draw, seed):
    """A valid input with a few things wrong: bits, bytes, lengths, pieces twice."""
    data = bytearray(seed)
    for _ in range(1 + draw.number(4)):
        at = draw.number(max(1, len(data)))
        action = draw.number(7)
        if action == 0 and data:
            data[at % len(data)] ^= 1 << draw.number(8)
        elif action == 1:
            data[at:at] = draw.bytes(draw.number(9))
        elif action == 2:
            del data[at : at + 1 + draw.number(16)]
        elif action == 3:
            del data[at:]
        elif action == 4:
            data[at:at] = data[: draw.number(64)]
        elif action == 5:
            data[at : at + 4] = draw.bytes(4)
        else:
            data += draw.bytes(draw.number(9))
    return bytes(data)


def mutate_json(draw, seed):
    """JSON in which a value, somewhere, is another one; or damaged text."""
    if draw.number(3) == 0:
        return mutate(draw, seed)
    value = json.loads(seed)
    holder = {"": value}
    parent, key = holder, ""
    for _ in range(draw.number(6)):
        inner = parent[key]
        if isinstance(inner, dict) and inner:
            parent, key = inner, draw.choice(sorted(inner))
        elif isinstance(inner, list) and inner:
            parent, key = inner, draw.number(len(inner))
        else:
            break
    replacement = draw.scalar()
    if isinstance(replacement, bytes):
        replacement = draw.choice([None, {}, [], {"a": []}, "x" * 300])
    if isinstance(parent, dict) and draw.number(4) == 0:
        del parent[key]
    else:
        parent[key] = replacement
    return json.dumps(holder.get("")).encode()
