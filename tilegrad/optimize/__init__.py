"""Stage 4: a kernel becomes the same kernel in a better shape, by a list of Opts.

opt, opts                     the Opts as data, and as checked rewrites
split, stage, overlap,        what some of them are made of: ranges in two, copies in scratch,
group, matrix, dots           overlapping reads, reductions shared by lanes, matrix and dot units
slices, scan                  rows slice by slice, and scans, shared by the lanes of a block
heuristic                     a list without measuring, by one of these:
  heuristic_streams,          passes over memory; tiles that are transposed in registers
  transposes
  heuristic_tiles, reuse,     reductions that use data again: which axes, and how much of each
  contraction_tile, rows,
  filter_window, padding
  heuristic_dots, _stages     sums on dot units; kernels of several stages
  heuristic_simt              targets with blocks of lanes
facts, shaper                 what they ask of a kernel, and a kernel under moves
model, explain                the estimate of a kernel's time, and why it has its shape
search, actions               a list by measuring: what may come next, and what looks good
findings                      what was found, as a file
prepack                       copies of operands, taken out of a kernel
name                          what a kernel is called
"""
