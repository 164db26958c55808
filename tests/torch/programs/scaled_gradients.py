"""Mixed precision with gradient scaling and accumulation."""

import torch
import torch.nn as nn


def fill(m, s=0.3):
    with torch.no_grad():
        for i, p in enumerate(m.parameters()):
            p.copy_(
                (
                    torch.sin(torch.arange(p.numel(), dtype=torch.float32) * (i + 1) * 0.37) * s
                ).view_as(p)
            )


use_amp = True
net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
fill(net)
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True)
scaler = torch.amp.GradScaler("cpu", enabled=use_amp)
data = [torch.sin(torch.arange(24.0) + i).reshape(4, 6) for i in range(8)]
targets = [torch.cos(torch.arange(8.0) * i).reshape(4, 2) for i in range(8)]
crit = nn.MSELoss()
for epoch in range(2):
    for i, (inp, tgt) in enumerate(zip(data, targets)):
        with torch.autocast(device_type="cpu", dtype=torch.bfloat16, enabled=use_amp):
            out = net(inp)
            assert out.dtype is torch.bfloat16
            loss = crit(out, tgt) / 2
        scaler.scale(loss).backward()
        if (i + 1) % 2 == 0:
            scaler.unscale_(opt)
            n = torch.nn.utils.clip_grad_norm_(net.parameters(), max_norm=0.5)
            scaler.step(opt)
            scaler.update()
            opt.zero_grad(set_to_none=True)
            print(f"{n.item():.1f}", f"{loss.item():.2f}", loss.dtype)
print(scaler.get_scale(), scaler.state_dict())
checkpoint = {
    "model": net.state_dict(),
    "optimizer": opt.state_dict(),
    "scaler": scaler.state_dict(),
}
sc = torch.cuda.amp.GradScaler(enabled=False)
print(sc.is_enabled(), sc.get_scale())
sc = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
p = nn.Parameter(torch.ones(2))
o = torch.optim.SGD([p], lr=1.0)
for v in (1.0, float("inf"), 1.0, 1.0, 1.0):
    o.zero_grad()
    sc.scale((p * v).sum()).backward()
    sc.step(o)
    sc.update()
    print(sc.get_scale(), p.detach())
with torch.autocast("cpu", dtype=torch.bfloat16):
    a = torch.ones(2, 2) @ torch.ones(2, 2)
    b = torch.softmax(a, -1)
    c = (a + torch.ones(2, 2)).dtype
    print(a.dtype, b.dtype, c, torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"))
    with torch.autocast("cpu", enabled=False):
        print((a.float() @ a.float()).dtype)
print(torch.is_autocast_enabled("cpu"))
try:
    sc.unscale_(o)
    sc.unscale_(o)
except RuntimeError as e:
    print(e)
print(
    nn.utils.clip_grad_norm_(net.parameters(), 1.0),
    nn.utils.get_total_norm([torch.ones(4), torch.ones(5)]),
)
