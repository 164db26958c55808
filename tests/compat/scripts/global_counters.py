from tinygrad import GlobalCounters, Tensor

x = Tensor([1.0, 2.0, 3.0]).realize()
GlobalCounters.reset()
assert GlobalCounters.kernel_count == GlobalCounters.global_ops == 0
(x * 3).realize()
assert GlobalCounters.kernel_count == 1
assert GlobalCounters.global_ops >= 3 and GlobalCounters.global_mem >= 24
assert GlobalCounters.time_sum_s >= 0
before = GlobalCounters.mem_used
kept = Tensor.rand(1 << 12).realize()
assert GlobalCounters.mem_used >= before + (4 << 12)
checked = 5
