"""The stages in their order: graphs are scheduled, compiled, kept as plans, and run.

child      child processes: how they start, and their messages
program    one kernel graph to a program, and what it costs
search     better Opts, found in child processes that may die of it
build      kernels: all stages in their order, kept by what shaped them; who else makes them
plans      a graph's schedule with its kernels and memory, kept by the graph
run        launches, one after another; the memory behind a leaf; rows of `DEBUG=2`
realize    what is asked for, what is there already, and what equal graphs share
"""
