"""Running a plan: memory, launches, and what is reported of them."""
