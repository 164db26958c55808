"""The stages in their order: graphs are scheduled, compiled, kept as plans, and run.

realize, known                what is asked for and what is there already, by node
plans                         a graph's schedule with its kernels, kept by the graph
pipeline, stages              one kernel through all stages, kept by what shaped it
run, watch                    launches, one after another; which of them made a NaN
memory                        which memory is behind a leaf
prepack                       operands packed beforehand, for captures
windows                       slices that move from run to run, which share a plan
workers, worker               kernels made in several processes
search, children, candidate   better Opts, found in processes that may die of it
kernel                        one kernel by hand
estimate, report              what a kernel costs, and the rows that `DEBUG=2` prints
"""
