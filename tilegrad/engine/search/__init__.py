"""Search on this machine: candidates compiled and run in child processes."""
