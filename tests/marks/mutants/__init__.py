"""For each row of docs/feature_rows.txt that has tests, one way to break its feature; a file a few
sections.
"""

from __future__ import annotations

from tests.marks.mutants import basics, devices, kernels, launches, models, views
from tests.marks.mutants.mutant import Mutant

__all__ = ["MUTANTS", "Mutant"]

MUTANTS: dict[str, Mutant] = {
    **basics.MUTANTS,
    **views.MUTANTS,
    **launches.MUTANTS,
    **kernels.MUTANTS,
    **models.MUTANTS,
    **devices.MUTANTS,
}
