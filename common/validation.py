"""One form for argument errors: the name, what is allowed, what was received."""

import math
from collections.abc import Collection
from numbers import Integral, Real
from typing import Any


def number(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
) -> float:
    """Return `value` as a float, or raise `ValueError`. NaN, infinities and booleans are refused."""
    bounds = []
    if above is not None:
        bounds.append(f"> {above:g}")
    if at_least is not None:
        bounds.append(f">= {at_least:g}")
    if below is not None:
        bounds.append(f"< {below:g}")
    if at_most is not None:
        bounds.append(f"<= {at_most:g}")
    allowed = "a finite number" + (" " + " and ".join(bounds) if bounds else "")
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise ValueError(f"{name} must be {allowed}. Received {value!r}.")
    result = float(value)
    if (
        (above is not None and not result > above)
        or (at_least is not None and not result >= at_least)
        or (below is not None and not result < below)
        or (at_most is not None and not result <= at_most)
    ):
        raise ValueError(f"{name} must be {allowed}. Received {value!r}.")
    return result


def integer(name: str, value: Any, *, at_least: int | None = None, at_most: int | None = None) -> int:
    """Return `value` as an int, or raise `ValueError`. Booleans and fractional numbers are refused."""
    low = "" if at_least is None else f" >= {at_least}"
    high = "" if at_most is None else f"{' and' if low else ''} <= {at_most}"
    allowed = f"an integer{low}{high}"
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ValueError(f"{name} must be {allowed}. Received {value!r}.")
    result = int(value)
    if (at_least is not None and result < at_least) or (at_most is not None and result > at_most):
        raise ValueError(f"{name} must be {allowed}. Received {value!r}.")
    return result


def boolean(name: str, value: Any) -> bool:
    """Return `value` if it is a bool, or raise `ValueError`."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false. Received {value!r}.")
    return value


def one_of(name: str, value: Any, choices: Collection[str]) -> str:
    """Return `value` if it is one of `choices`, or raise `ValueError`."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(repr(choice) for choice in choices)}. Received {value!r}.")
    return value
