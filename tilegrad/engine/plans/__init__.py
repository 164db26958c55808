"""Plans: a schedule whose kernels are compiled and whose memory is planned."""
