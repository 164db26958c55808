"""The base of every other folder, which knows nothing of compilers: dtypes, errors, switches, the
cache.
"""
