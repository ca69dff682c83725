"""Numbers at the paper's digits: rounding as in print, and whether a computed number equals a printed one."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Decimal

# a computed mean of exact fractions carries an error in the sixteenth digit, which must not decide about a tie
_SLACK = 1e-9


def round_half_up(value: float, digits: int) -> float:
    """Return ``value`` rounded to ``digits`` decimals, halves away from zero, as numbers are rounded by hand.

    The decimal digits that Python shows are rounded, not the binary number behind them: 0.0825 gives 0.083 at three.
    Raises ValueError for a number that is not finite or a negative number of digits.
    """
    if digits < 0 or not math.isfinite(value):
        raise ValueError(f"expected a finite number and digits of at least 0, got {value!r} and {digits!r}")
    return float(Decimal(repr(float(value))).quantize(Decimal(1).scaleb(-int(digits)), ROUND_HALF_UP))


def double_rounded(value: float, digits: int) -> float:
    """Return ``value`` rounded to one digit more first and to ``digits`` decimals then: 0.57149 becomes 0.572."""
    return round_half_up(round_half_up(value, digits + 1), digits)


def equal_at_printed_digits(value: float, printed: float, digits: int) -> bool:
    """Return whether ``printed`` is ``value`` rounded to ``digits`` decimals; of a tie both neighbours are accepted.

    Ties are open because print does not tell whether halves went up or to the even digit.
    """
    return abs(value - printed) <= 0.5 * 10.0**-digits + _SLACK


def agreement(value: float, printed: float, digits: int) -> str:
    """Return "equal", "equal after double rounding" or "different" for a computed and a printed number.

    The middle case is a printed digit that arises only when the computed number is rounded twice, first to one digit
    more: 0.57149 is printed as 0.572 by way of 0.5715. It is the paper's number, but not the number's rounding.
    """
    if equal_at_printed_digits(value, printed, digits):
        return "equal"
    twice = double_rounded(value, digits)
    return "equal after double rounding" if abs(twice - printed) <= _SLACK else "different"


def at_digits(value: float, digits: int, sign: bool = False) -> str:
    """Return ``value`` as a text with ``digits`` decimals; with ``sign`` a plus is shown too, and zero is never -0."""
    rounded = round_half_up(value, digits) + 0.0
    return f"{rounded:+.{digits}f}" if sign else f"{rounded:.{digits}f}"
