"""A training loop under the profiler, with regions that are named."""

import numpy as np
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule

model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
rng = np.random.default_rng(36)
for p in model.parameters():
    p.data.copy_(torch.from_numpy(rng.normal(0, 0.2, tuple(p.shape)).astype(np.float32)))
x = torch.from_numpy(rng.standard_normal((32, 16)).astype(np.float32))
y = torch.from_numpy(rng.integers(0, 4, 32))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def train_step():
    with record_function("forward"):
        loss = nn.functional.cross_entropy(model(x), y)
    with record_function("backward"):
        optimizer.zero_grad()
        loss.backward()
    with record_function("step"):
        optimizer.step()
    return loss.item()


with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as prof:
    with record_function("whole"):
        losses = [train_step() for _ in range(3)]
print([f"{loss:.4f}" for loss in losses])
averages = prof.key_averages()
names = {event.key: event.count for event in averages}
print({name: names[name] for name in ("whole", "forward", "backward", "step")})
whole = next(event for event in averages if event.key == "whole")
print(whole.cpu_time_total > 0, whole.cpu_time_total >= whole.self_cpu_time_total)
table = averages.table(sort_by="cpu_time_total", row_limit=50)
print("Name" in table, "CPU total" in table, "# of Calls" in table, "whole" in table)
print(len(prof.events()) >= 10)

seen = []
with profile(
    activities=[ProfilerActivity.CPU],
    schedule=schedule(wait=1, warmup=1, active=2, repeat=1),
    on_trace_ready=lambda p: seen.append(p.step_num),
) as prof:
    for _ in range(6):
        train_step()
        prof.step()
print(seen)
counts = {event.key: event.count for event in prof.key_averages()}
print(counts["forward"], counts["step"])

with torch.autograd.profiler.profile() as prof:
    with torch.autograd.profiler.record_function("label"):
        torch.ones(3).exp().sum().item()
print("label" in str(prof.key_averages().table()), prof.self_cpu_time_total > 0)


@record_function("decorated")
def double(v):
    return v * 2


with profile() as prof:
    double(torch.ones(2)).tolist()
print([e.count for e in prof.key_averages() if e.key == "decorated"])
