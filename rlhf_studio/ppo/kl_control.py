"""Who sets β, the price of a nat of KL: a constant, or a controller that holds the KL near a target.

Source of the controller: Ziegler et al. 2019, arXiv:1909.08593.
"""

from __future__ import annotations

import math

MAX_ERROR = 0.2  # one batch, however far off, counts as at most 20 % away from the target


class _Coefficient:
    """What both controllers share: β itself, and saving it."""

    def __init__(self, coef: float) -> None:
        self.load_state_dict({"coef": coef})

    def state_dict(self) -> dict[str, float]:
        """Everything that a checkpoint needs, as plain floats."""
        return {"coef": self.coef}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Continue from what ``state_dict`` gave. Raises ValueError for a coefficient that is negative or not finite."""
        coef = float(state["coef"])
        if not (math.isfinite(coef) and coef >= 0):
            raise ValueError(f"coef must be a finite number, 0 or above, got {coef}")
        self.coef = coef


class FixedKL(_Coefficient):
    """A constant β.

    Attributes:
        coef: β, score units per nat.

    Raises:
        ValueError: the coefficient is negative or not finite.
    """

    def update(self, kl: float, episodes: int) -> None:
        """Leave β as it is, whatever the KL; takes the same arguments as ``AdaptiveKL.update``."""


class AdaptiveKL(_Coefficient):
    """A β that rises while the KL is above its target and falls while it is below.

        e = clip(KL / target − 1, −0.2, 0.2)          β ← β (1 + e · episodes / horizon)

    Attributes:
        coef: β now, score units per nat. A β of 0 stays 0, since every change is a factor.
        target: the KL to hold, nats per response.
        horizon: episodes over which a steady error e changes β by a factor of about exp(e); smaller reacts faster.

    Raises:
        ValueError: the coefficient is negative or not finite, or target or horizon is not a finite number above 0.
    """

    def __init__(self, coef: float, target: float, horizon: float) -> None:
        super().__init__(coef)
        for name, number in (("target", target), ("horizon", horizon)):
            if not (math.isfinite(number) and number > 0):
                raise ValueError(f"{name} must be a finite number above 0, got {number}")
        self.target = target
        self.horizon = horizon

    def update(self, kl: float, episodes: int) -> None:
        """Move β after a batch.

        Args:
            kl: mean over the batch's episodes of the k1 estimate summed over each response, in nats.
            episodes: responses in the batch, over all processes.

        Raises:
            ValueError: the KL is not finite (β would be lost for good), or the horizon is so short for this batch that the
                factor is not above 0 and β would vanish or change its sign.
        """
        if not math.isfinite(kl):
            raise ValueError(f"kl must be finite, got {kl}")
        error = min(max(kl / self.target - 1, -MAX_ERROR), MAX_ERROR)
        factor = 1 + error * episodes / self.horizon
        if factor <= 0:
            raise ValueError(
                f"horizon {self.horizon} is too short for batches of {episodes} episodes: it must be above {MAX_ERROR * episodes:g}"
            )
        self.coef *= factor
