"""Files: weights in, weights out.

Each loader is a bounded parser of data: it imports nothing, executes nothing, and checks every size
in a file before it acts on it.
"""
