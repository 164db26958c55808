"""Stage 4: a kernel becomes the same kernel in a better shape, by a list of Opts.

opts            the Opts as data (opt) and as checked rewrites (opts), and what these are made of:
                ranges in two (split), copies in scratch or shared memory (stage), overlaps of
                reads, reductions shared by lanes (group), matrix and dot units, rows slice by
                slice, scans
analysis        properties of a kernel: facts, accesses, footprints, its name
model           the estimate of a kernel's time (model), and why it has its shape (explain_opts)
generators      a list without measuring (heuristic), by one of these:
  heuristic_streams, transposes     passes over memory; tiles that are transposed in registers
  heuristic_tiles, reuse, ...       reductions that use data again: which axes, how much of each
  heuristic_dots, _stages           sums on dot units; kernels of several stages
  heuristic_simt                    targets with blocks of lanes
  shaper, choice, prepack           a kernel under moves; the choice between lists; operands packed
                                    beforehand
search          a list by measuring (search): what may come next (actions), and what was found, as a
                file (findings)

Imports go from search and generators to model, from there to analysis, and from there to opts.
"""
