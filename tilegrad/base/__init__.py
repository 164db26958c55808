"""What every other folder may use and that knows nothing of compilers: dtypes, errors, switches,
the cache.
"""
