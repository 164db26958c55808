"""Python imports this when it starts, where this folder is on its path."""

import guard_pages

guard_pages.from_environment()
