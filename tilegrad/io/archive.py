"""Reading zip archives in mapped memory: a bounded parser of the parts that data files use.

A member that is stored as it is becomes a view of the archive, nothing copied; it is read through
once, as its checksum must be the one that the archive states. A compressed one is
inflated into memory of exactly the size that the archive states, and all of them together may not
be more than a limit: so an archive cannot make its reader allocate what it likes. Nothing is ever
written to disk, so names are names only.
"""

from __future__ import annotations

import struct
import tarfile
import zlib
from dataclasses import dataclass
from io import BytesIO

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import DataError
from tilegrad.io.mapped import Source, damaged, source_of, tensor_over
from tilegrad.tensor.tensor import Tensor

__all__ = ["Archive", "Member", "is_archive", "tar_extract", "tar_members", "zip_extract"]

_END, _END64, _LOCATOR = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_ENTRY, _LOCAL = b"PK\x01\x02", b"PK\x03\x04"
_STORED, _DEFLATED = 0, 8
_ENCRYPTED = 0x1
_MAX_COMMENT = 0xFFFF
# Errors that Python's reader of tar headers may raise: it calls itself for headers of headers.
_TAR_ERRORS = (
    ValueError, OSError, EOFError, OverflowError, LookupError, RecursionError, struct.error,
)  # fmt: skip
_FULL = 0xFFFFFFFF
# A stream of zeros shrinks a thousandfold; data that is worth keeping does not.
_EXPANSION = 100
_ALWAYS = 64 << 20


@dataclass(frozen=True)
class Member:
    """Entry of a member in the archive's table: its header stands at byte `header`, and has the
    name once more, whose bytes are `raw`.
    """

    name: str
    method: int
    is_encrypted: bool
    header: int
    packed: int
    size: int
    crc: int
    raw: bytes


def is_archive(data: memoryview) -> bool:
    """Whether the bytes begin as a zip archive does."""
    return bytes(data[:4]) in (_LOCAL, _END)


class Archive:
    """The members of the archive `data`, which was read from `file` by `reader`.

    Raises DataError for whatever the format does not allow. `limit` is how many bytes may be
    inflated in all; by default 100 times the archive and 64 MiB.
    """

    def __init__(self, reader: str, file: str, data: memoryview, limit: int | None = None):
        self.reader, self.file, self.data = reader, file, data
        self.limit = _ALWAYS + _EXPANSION * data.nbytes if limit is None else limit
        self.left = self.limit
        self.members: dict[str, Member] = {}
        begin, count, size = self._table()
        at, end = begin, begin + size
        for _ in range(count):
            at = self._entry(at, end)
        # PyTorch can be told to compute none (`set_crc32_options`): then all of them are 0.
        self.has_checksums = any(member.crc for member in self.members.values())

    def bytes_of(self, name: str) -> memoryview:
        """The content of a member, which must be there.

        Raises DataError for a member that is encrypted, packed in an unknown way, or damaged.
        """
        member = self.members[name]
        head = self._bytes(member.header, 30, "the header of a member")
        if bytes(head[:4]) != _LOCAL:
            raise self._damaged("a member has no header", "PK 3 4", bytes(head[:4]), name)
        name_length, extra_length = struct.unpack("<HH", head[26:30])
        own = bytes(self._bytes(member.header + 30, name_length, "the name of a member"))
        if own != member.raw:
            raise self._damaged("a member has two names", member.raw, own, name)
        begin: int = member.header + 30 + name_length + extra_length
        packed = self._bytes(begin, member.packed, f"member {name!r}")
        if member.is_encrypted:
            raise self._damaged("a member is encrypted", "one in the clear", "encrypted", name)
        if member.method == _STORED:
            if member.packed != member.size:
                raise self._damaged("a member's two sizes differ", member.size, member.packed, name)
            self._check(member, packed)
            return packed
        if member.method == _DEFLATED:
            return self._inflated(member, packed)
        raise self._damaged("unknown compression", "0 (none) or 8 (deflate)", member.method, name)

    def _inflated(self, member: Member, packed: memoryview) -> memoryview:
        if member.size > self.left:
            raise self._damaged(
                "the archive inflates to more than is allowed",
                f"at most {self.limit} bytes in all",
                f"{member.size} bytes more than {self.limit - self.left}",
                member.name,
            )
        self.left -= member.size
        try:
            stream = zlib.decompressobj(-15)
            # One byte more shows a stream that is longer than it says.
            found = stream.decompress(packed, member.size + 1)
        except zlib.error as error:
            raise self._damaged(
                "a member is damaged", "a deflate stream", error, member.name
            ) from error
        if len(found) != member.size or not stream.eof:
            raise self._damaged(
                "a member has another size than the table says",
                f"{member.size} bytes",
                f"{len(found)} bytes{'' if stream.eof else ' and no end'}",
                member.name,
            )
        self._check(member, found)
        return memoryview(found)

    def _check(self, member: Member, content: bytes | memoryview) -> None:
        """Raises DataError unless the content of a member has the checksum that the table says."""
        found = zlib.crc32(content)
        if found != member.crc and self.has_checksums:
            expected, got = f"CRC {member.crc:08x}", f"CRC {found:08x}"
            raise self._damaged("a member is damaged", expected, got, member.name)

    def _table(self) -> tuple[int, int, int]:
        """Where the table of members begins, how many it has, and its bytes."""
        size = self.data.nbytes
        tail = bytes(self.data[max(size - _MAX_COMMENT - 22, 0) :])
        at = tail.rfind(_END)
        while at >= 0:
            if at + 22 <= len(tail):
                (comment,) = struct.unpack_from("<H", tail, at + 20)
                if at + 22 + comment == len(tail):
                    break
            at = tail.rfind(_END, 0, at)
        if at < 0:
            raise self._damaged("no table of members", "an end record in the last bytes", "none")
        count, length, begin = struct.unpack_from("<10xHII", tail, at)
        end = size - len(tail) + at
        if 0xFFFF == count or _FULL in (length, begin):
            locator = self._bytes(end - 20, 20, "the locator of a large archive")
            if bytes(locator[:4]) == _LOCATOR:
                (where,) = struct.unpack("<8xQ4x", locator)
                record = self._bytes(where, 56, "the end record of a large archive")
                if bytes(record[:4]) != _END64:
                    raise self._damaged("no end record", "PK 6 6", bytes(record[:4]))
                count, length, begin = struct.unpack("<32xQQQ", record)
        self._bytes(begin, length, "the table of members")
        if count * 46 > length:
            raise self._damaged(
                "the table of members is too short", f"{46 * count} bytes or more", length
            )
        return begin, count, length

    def _entry(self, at: int, end: int) -> int:
        """Read the table's entry at byte `at`, and give where the next one begins."""
        head = bytes(self._bytes(at, 46, "an entry of the table of members"))
        (flags, method, crc, packed, size, name_length, extra_length, comment, header) = (
            struct.unpack("<8xHH4xIIIHHH8xI", head)
        )
        following: int = at + 46 + name_length + extra_length + comment
        if head[:4] != _ENTRY or following > end:
            raise self._damaged("the table of members is damaged", "an entry", f"byte {at}")
        raw = bytes(self._bytes(at + 46, name_length, "a name"))
        extra = bytes(self._bytes(at + 46 + name_length, extra_length, "an extra field"))
        try:
            name = raw.decode("utf-8")
        except UnicodeDecodeError:
            name = raw.decode("cp437")
        packed, size, header = self._wide(extra, packed, size, header, name)
        if name in self.members:
            raise self._damaged("a member stands twice in the archive", "each name once", name)
        self.members[name] = Member(
            name, method, bool(flags & _ENCRYPTED), header, packed, size, crc, raw
        )
        return following

    def _wide(
        self, extra: bytes, packed: int, size: int, header: int, name: str
    ) -> tuple[int, int, int]:
        """Sizes and offset, from the extra field where 32 bits are too few for them."""
        if _FULL not in (packed, size, header):
            return packed, size, header
        at = 0
        while at + 4 <= len(extra):
            kind, length = struct.unpack_from("<HH", extra, at)
            if kind == 1:
                numbers = list(
                    struct.unpack_from(f"<{min(length, len(extra) - at - 4) // 8}Q", extra, at + 4)
                )
                given = [size, packed, header]
                for position, value in enumerate(given):
                    if value == _FULL:
                        if not numbers:
                            break
                        given[position] = numbers.pop(0)
                return given[1], given[0], given[2]
            at += 4 + length
        raise self._damaged("a large member without its size", "a zip64 field", "none", name)

    def _bytes(self, begin: int, length: int, what: str) -> memoryview:
        if begin < 0 or begin + length > self.data.nbytes:
            raise self._damaged(
                f"the file is truncated: {what} lies outside",
                f"{max(begin, 0) + length} bytes or more",
                f"{self.data.nbytes} bytes",
            )
        return self.data[begin : begin + length]

    def _damaged(
        self, what: str, expected: object, got: object, member: str | None = None
    ) -> DataError:
        more = {} if member is None else {"member": repr(member)}
        return damaged(self.reader, self.file, what, expected, got, **more)


def zip_extract(source: Source, device: str | None = None) -> dict[str, Tensor]:
    """Members of a zip archive by name. Those that are stored uncompressed stay in the mapped file
    until they are used.

    Args:
        source: a path, a file, bytes, or a uint8 tensor.
        device: name of the device, by default `Device.DEFAULT`.

    Returns a dict of uint8 tensors of shape (bytes,).

    Raises DataError if the archive is absent or damaged, or inflates to more than 100 times itself
    and 64 MiB.

    >>> npz_save({"weight": Tensor([1, 2])}, "weights.npz")
    >>> list(zip_extract("weights.npz"))
    ['weight.npy']
    """
    file, data = source_of("zip_extract", source)
    archive = Archive("zip_extract", file, data)
    return {
        name: _bytes_tensor(archive.bytes_of(name), device)
        for name in archive.members
        if not name.endswith("/")
    }


def tar_extract(source: Source, device: str | None = None) -> dict[str, Tensor]:
    """Files of a tar archive by name, which stay in the mapped file until they are used.

    Args:
        source: a path, a file, bytes, or a uint8 tensor; not compressed.
        device: name of the device, by default `Device.DEFAULT`.

    Returns a dict of uint8 tensors of shape (bytes,).

    Raises DataError if the archive is absent or damaged.

    >>> tar_extract("texts.tar")["a.txt"].data().tobytes()
    b'hello'
    """
    file, data = source_of("tar_extract", source)
    members = tar_members("tar_extract", file, data)
    return {name: _bytes_tensor(content, device) for name, content in members.items()}


def _bytes_tensor(content: memoryview, device: str | None) -> Tensor:
    return tensor_over(content, dtypes.uint8, (content.nbytes,), device)


def tar_members(reader: str, file: str, data: memoryview) -> dict[str, memoryview]:
    """The plain files of a tar archive, by name; of several with one name the last, as in any tar.

    Raises DataError for what is no archive.
    """
    found: dict[str, memoryview] = {}
    try:
        with tarfile.open(fileobj=_MappedFile(data), mode="r:") as tar:
            while (member := tar.next()) is not None:
                end = member.offset_data + member.size
                if member.size < 0 or end > data.nbytes:
                    what = f"the file is truncated in {member.name!r:.80}"
                    raise damaged(reader, file, what, f"{end} bytes", f"{data.nbytes} bytes")
                if member.isreg() and not member.issparse():
                    found[member.name] = data[member.offset_data : end]
    except DataError:
        raise
    except (*_TAR_ERRORS, tarfile.TarError) as error:
        raise damaged(reader, file, "the tar is damaged", "a tar archive", error) from error
    return found


class _MappedFile(BytesIO):
    """Memory as a file; the tar reader asks for headers only."""

    def __init__(self, data: memoryview):
        super().__init__()
        self.data, self.position = data, 0

    def read(self, size: int | None = -1, /) -> bytes:
        end = self.data.nbytes if size is None or size < 0 else self.position + size
        found = bytes(self.data[self.position : end])
        self.position += len(found)
        return found

    def seek(self, offset: int, whence: int = 0, /) -> int:
        self.position = max(0, offset + (0, self.position, self.data.nbytes)[whence])
        return self.position

    def tell(self) -> int:
        return self.position
