# State in files: safetensors with metadata, lazy loads from disk to a device, a dictionary of half
# weights, renamed keys, nested lists, a strict load that fails, and numbers on another device.

import numpy as np
from tinygrad import Device, Tensor, dtypes, nn
from tinygrad.nn.state import (
    get_state_dict,
    load_state_dict,
    safe_load,
    safe_load_metadata,
    safe_save,
    torch_load,
)

rng = np.random.default_rng(3)


class Net:
    def __init__(self):
        self.blocks = [{"fc": nn.Linear(4, 4), "norm": nn.LayerNorm(4)} for _ in range(2)]
        self.head, self.scale = nn.Linear(4, 2, bias=False), Tensor([2.0])

    def __call__(self, x):
        for block in self.blocks:
            x = x + block["norm"](block["fc"](x).gelu())
        return self.head(x) * self.scale


net, other = Net(), Net()
names = list(get_state_dict(net))
assert {"blocks.0.fc.weight", "blocks.1.norm.bias", "scale", "head.weight"} <= set(names)
safe_save(get_state_dict(net), "net.safetensors", metadata={"format": "pt", "step": "7"})
state = safe_load("net.safetensors")
_, length, metadata = safe_load_metadata("net.safetensors")
assert metadata["__metadata__"] == {"format": "pt", "step": "7"} and length > 0
load_state_dict(other, state, verbose=False)
x = Tensor(rng.normal(size=(3, 4)).astype(np.float32))
assert np.array_equal(net(x).numpy(), other(x).numpy())
half = {f"model.{k}": v.to(Device.DEFAULT).half() for k, v in state.items()}
safe_save(half, "half.safetensors")
back = {
    k.removeprefix("model."): v.to(Device.DEFAULT).cast(dtypes.float)
    for k, v in safe_load("half.safetensors").items()
}
load_state_dict(other, back, verbose=False)
assert np.abs(net(x).numpy() - other(x).numpy()).max() < 2e-2
del back["head.weight"]
said = ""
try:
    load_state_dict(other, back, verbose=False)
except Exception as error:
    said = repr(error)
assert "head.weight" in said
load_state_dict(other, back, strict=False, verbose=False)
raw = Tensor(np.arange(12, dtype=np.int16).reshape(3, 4)).to("disk:raw.bin").realize()
again = Tensor.empty(3, 4, device="disk:raw.bin", dtype=dtypes.int16)
assert again[1:, ::1].to(Device.DEFAULT).tolist() == [[4, 5, 6, 7], [8, 9, 10, 11]]
assert again.bitcast(dtypes.uint16).to(Device.DEFAULT).numpy().dtype == np.uint16
clang = Tensor([1, 2, 3]).to("CPU") + 1
assert clang.device == "CPU" and clang.tolist() == [2, 3, 4]
assert callable(torch_load) and raw.nbytes() == 24
checked = 9
