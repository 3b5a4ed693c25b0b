"""The names of the distributions that a claim file may draw from. Needs no torch; `distributions.py` draws."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DistributionName:
    """A distribution as the claim language sees it.

    Attributes:
        name: How it is written.
        parameters: Its parameters in order; one called `distribution` is itself a distribution, the others are numbers.
        summary: What a draw is.
    """

    name: str
    parameters: tuple[str, ...]
    summary: str

    @property
    def usage(self) -> str:
        """How it is written with its parameters, for messages: `normal(mean, variance)`."""
        return f"{self.name}({', '.join(self.parameters)})" if self.parameters else self.name


_ALL = (
    DistributionName("normal", ("mean", "variance"), "independent Gaussian entries"),
    DistributionName("half_normal", ("variance",), "absolute values of normal(0, variance)"),
    DistributionName("uniform", ("low", "high"), "independent entries, uniform on [low, high)"),
    DistributionName("rademacher", (), "independent entries, -1 or 1 with equal probability"),
    DistributionName("gaussian", (), "independent standard Gaussian entries"),
    DistributionName("sphere", (), "independent rows, uniform on the unit sphere; a vector counts as one row"),
    DistributionName(
        "orthonormal_rows", (), "orthonormal rows, uniformly distributed; at most as many rows as columns"
    ),
    DistributionName("orthogonal", (), "a square orthogonal matrix, uniformly distributed"),
    DistributionName(
        "identity",
        (),
        "the identity matrix; like every square draw it takes N x d where N and d are the same fixed number",
    ),
    DistributionName("zeros", (), "every entry 0"),
    DistributionName("ones", (), "every entry 1"),
    DistributionName("nonnegative", ("distribution",), "absolute values of the entries"),
    DistributionName("symmetric", ("distribution",), "(R + R')/2 of a square draw R"),
    DistributionName("skew", ("distribution",), "(R - R')/2 of a square draw R"),
    DistributionName("psd", ("distribution",), "R'R of a square draw R"),
    DistributionName("rank_one", ("distribution",), "u v' of two drawn vectors"),
    DistributionName("nilpotent", ("distribution",), "strictly upper triangular part of a square draw"),
    DistributionName("diagonal", ("distribution",), "a drawn vector on the diagonal, 0 elsewhere"),
    DistributionName(
        "duplicates", ("distribution",), "drawn rows, each repeated once (the last one not where N is odd)"
    ),
    DistributionName("near_parallel", ("eps",), "unit rows; rows 1 and 2, 3 and 4, ... at the angle eps in radians"),
    DistributionName("low_rank", ("distribution", "r"), "U V' of two drawn factors with r columns each"),
)

DISTRIBUTIONS: dict[str, DistributionName] = {entry.name: entry for entry in _ALL}
