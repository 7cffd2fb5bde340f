"""McNemar's test of paired answers: whether flips one way are more than flips the other way."""

from __future__ import annotations

from scipy.special import bdtr


def mcnemar_exact_p(one_only: int, other_only: int) -> float:
    """The two-sided exact conditional p value: twice the binomial tail of the rarer flip; 1 without flips."""
    flips, fewer = one_only + other_only, min(one_only, other_only)
    return min(1.0, 2.0 * float(bdtr(fewer, flips, 0.5))) if flips else 1.0


def mcnemar_mid_p(one_only: int, other_only: int) -> float:
    """The two-sided mid-p value, less conservative than the exact one (Fagerland et al., BMC Med Res Methodol 13:91).

    Half of the probability of what was observed is left out of each tail.
    """
    flips, fewer = one_only + other_only, min(one_only, other_only)
    if flips == 0:
        return 1.0
    tail = float(bdtr(fewer, flips, 0.5))
    observed = tail - (float(bdtr(fewer - 1, flips, 0.5)) if fewer else 0.0)
    return 1.0 - observed / 2 if one_only == other_only else 2.0 * tail - observed
