"""How a call comes in: what a user gives, other dtypes, and graphs made from templates."""
