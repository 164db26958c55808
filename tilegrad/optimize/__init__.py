"""Stage 4: a kernel becomes the same kernel in a better shape, by a list of Opts.

opt, opts                     the Opts as data, and as checked rewrites
split, stage, overlap,        what some of them are made of: ranges in two, copies in scratch,
group, matrix, dots           windows, folds that lanes share, matrix units, dot units
heuristic                     a list without measuring, by one of these:
  heuristic_streams, _turns   passes over memory; tiles that are turned in registers
  heuristic_tiles, reuse,     folds that use data again: which axes, and how much of each
  along, rows
  heuristic_dots, _phases     sums on dot units; kernels of several phases
  heuristic_simt              targets with blocks of lanes
facts, shaper                 what they ask of a kernel, and a kernel under moves
search, actions, cost         a list by measuring: what may come next, and what looks good
findings                      what was found, as a file
prepack                       copies of operands, taken out of a kernel
name                          what a kernel is called
"""
