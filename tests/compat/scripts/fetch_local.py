import gzip
from pathlib import Path

from tinygrad import fetch
from tinygrad.helpers import fetch as same

Path("data.txt").write_bytes(b"hello")
Path("data.gz").write_bytes(gzip.compress(b"hello"))
assert fetch is same
assert fetch(Path("data.txt").resolve().as_uri()).read_bytes() == b"hello"
assert fetch("./data.txt").read_text() == "hello"
assert fetch(Path("data.gz").resolve().as_uri(), gunzip=True).read_bytes() == b"hello"
try:
    fetch("https://example.com/weights.bin", name="weights_that_nobody_has.bin")
    raise AssertionError("a connection")
except ValueError as error:
    text = str(error)
    assert "opens no connection" in text and "https://example.com/weights.bin" in text
    assert "weights_that_nobody_has.bin" in text and "curl" in text
checked = 5
