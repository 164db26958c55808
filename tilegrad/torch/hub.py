"""`torch.hub`: files of weights from an address, kept in a folder."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.saving import load

__all__ = ["HASH_REGEX", "download_url_to_file", "get_dir", "load_state_dict_from_url", "set_dir"]

# The name of a file that ends with the beginning of its SHA-256: resnet18-f37072fd.pth
HASH_REGEX = re.compile(r"-([a-f0-9]{8,64})\.")
_chosen: dict[str, str] = {}


def get_dir() -> str:
    """The folder of downloaded files: that of `set_dir`, or `hub` in TORCH_HOME, or in
    `$XDG_CACHE_HOME/torch` or `~/.cache/torch`.
    """
    return _chosen["folder"] if "folder" in _chosen else os.path.join(_get_torch_home(), "hub")


def _get_torch_home() -> str:
    """The folder of all that PyTorch keeps."""
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.environ.get("TORCH_HOME", os.path.join(cache, "torch")))


def set_dir(d: str | os.PathLike[str]) -> None:
    """Use another folder from now on."""
    _chosen["folder"] = os.path.expanduser(d)


def download_url_to_file(
    url: str, dst: str, hash_prefix: str | None = None, progress: bool = True
) -> None:
    """Write what an address gives to the file `dst`, once all of it has come.

    Raises URLError where nothing comes, RuntimeError where its SHA-256 does not begin with
    `hash_prefix`.
    """
    digest = hashlib.sha256()
    target = Path(os.path.expanduser(dst))
    handle, partial = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}-")
    try:
        with urllib.request.urlopen(url) as given, os.fdopen(handle, "wb") as file:
            while block := given.read(1 << 20):
                file.write(block)
                digest.update(block)
        if hash_prefix is not None and not digest.hexdigest().startswith(hash_prefix):
            raise RuntimeError(
                f"torch.hub: what {url} gave has the SHA-256 {digest.hexdigest()}, which does not "
                f"begin with {hash_prefix}"
            )
        shutil.move(partial, target)
    finally:
        Path(partial).unlink(missing_ok=True)


def load_state_dict_from_url(
    url: str,
    model_dir: str | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = False,
) -> Any:
    """The weights in the file at an address, which is downloaded once to `model_dir` (`checkpoints`
    in `get_dir()`). `check_hash` compares it with the hash in its name. Plain data and tensors are
    read, whatever `weights_only` says.

    Raises what `download_url_to_file` and `torch.load` raise.
    """
    folder = model_dir or os.path.join(get_dir(), "checkpoints")
    os.makedirs(folder, exist_ok=True)
    name = file_name or os.path.basename(urlparse(url).path)
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        found = HASH_REGEX.search(name) if check_hash else None
        download_url_to_file(url, path, found.group(1) if found else None, progress)
    return load(path, map_location=map_location, weights_only=True)


refuse_others(__name__)
