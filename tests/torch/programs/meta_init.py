"""A model that is described on the meta device and given memory later."""

import torch
from torch import nn

x = torch.empty(2, 3, device="meta")
print(x.shape, x.dtype, x.device, x.is_meta, x)
y = (x @ torch.empty(3, 5, device="meta")).relu().sum(dim=1)
print(y.shape, y.device)
with torch.device("meta"):
    model = nn.Sequential(
        nn.Linear(1000, 1000), nn.ReLU(), nn.BatchNorm1d(1000), nn.Linear(1000, 10)
    )
print({p.device.type for p in model.parameters()})
print(sum(p.numel() for p in model.parameters()), model[0].weight.numel() * 4)
print(model(torch.empty(4, 1000, device="meta")).shape)
big = nn.Linear(200000, 200000, device="meta")
print(big, big.weight.shape, big.weight.requires_grad, big.weight.is_meta)
try:
    x.item() if x.numel() == 1 else x.tolist()
except (RuntimeError, NotImplementedError) as error:
    print(type(error).__name__)
try:
    nn.Linear(2, 2, device="meta").to("cpu")
except NotImplementedError as error:
    print("to_empty" in str(error))
small = nn.Linear(3, 2, device="meta")
small = small.to_empty(device="cpu")
nn.init.constant_(small.weight, 0.5)
nn.init.zeros_(small.bias)
print(small(torch.ones(1, 3)), small.weight.device)
loss = small(torch.ones(4, 3)).sum()
loss.backward()
print(small.weight.grad)
other = nn.Linear(3, 2, device="meta")
other.load_state_dict(small.state_dict(), assign=True)
print(other.weight, other.weight.device, isinstance(other.weight, nn.Parameter))
print(nn.Embedding(10, 3, device="meta").weight.to_empty if False else "end")
