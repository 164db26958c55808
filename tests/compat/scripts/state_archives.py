import tarfile
import zipfile
from pathlib import Path

import numpy as np
from tinygrad import Tensor, dtypes
from tinygrad.nn.state import get_parameters, tar_extract, zip_extract

x = np.arange(6, dtype=np.float32)
Path("x.bin").write_bytes(x.tobytes())
with tarfile.open("x.tar", "w") as tar:
    tar.add("x.bin")
with zipfile.ZipFile("x.zip", "w") as archive:
    archive.write("x.bin")
for read, path in ((tar_extract, "x.tar"), (zip_extract, "x.zip")):
    got = read(Tensor(Path(path)))["x.bin"].to(None).bitcast(dtypes.float32)
    np.testing.assert_array_equal(got.numpy(), x)
model = {"a": Tensor([1.0]), "b": [Tensor([2.0]), {"c": Tensor([3.0])}]}
assert [p.item() for p in get_parameters(model)] == [1, 2, 3]
checked = 3
