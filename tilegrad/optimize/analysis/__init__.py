"""Properties of a kernel that no Opt changes: accesses, footprints, names."""
