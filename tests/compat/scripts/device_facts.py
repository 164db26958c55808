from tinygrad import Device, Tensor, dtypes
from tinygrad.device import is_dtype_supported

assert isinstance(Device.DEFAULT, str) and Device.DEFAULT in Device.get_available_devices()
renderer = Device[Device.DEFAULT].renderer
assert isinstance(renderer.has_local, bool) and isinstance(renderer.has_shared, bool)
assert isinstance(renderer.supports_float4, bool) and list(renderer.tensor_cores) is not None
assert renderer.device == Device.DEFAULT and Device.DEFAULT in repr(renderer)
assert Device.canonicalize(None) == Device.DEFAULT
assert Device.canonicalize("cpu:0") == "CPU"
t = Tensor([1, 2], device="CPU")
assert t.device == "CPU" and t.to("CPU").tolist() == [1, 2]
Device[Device.DEFAULT].synchronize()
Device.DEFAULT = "CPU"
assert Tensor([1]).device == "CPU"
assert is_dtype_supported(dtypes.half) and is_dtype_supported(dtypes.float, "CPU")
checked = 10
