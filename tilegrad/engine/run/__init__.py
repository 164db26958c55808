"""Running a plan: memory, launches, and reports of them."""
