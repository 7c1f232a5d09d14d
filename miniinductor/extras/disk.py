"""(coverage) Where what was built is kept: files in `config.cache_dir`, each with a seal at its
end.

In:   a name and bytes.   Out: the bytes, in this process or a later one; None where there is no
whole file.

    >>> disk().write("greeting", b"hello")
    >>> disk().read("greeting")
    b'hello'

A file is written under another name and renamed, so a reader sees a whole file or none, and two
processes that write the same thing at once both end with the same one.  It ends with its SHA-256:
one that was cut short or damaged is not there.

careful_disk.py adds what folders that cannot be written, other users, and years need.

Mirrors torch/_inductor/codecache.py.  Left out: remote caches.
"""

import functools
import hashlib
import os
import threading

from .. import config, coverage
from ..exceptions import CompilerError
from ..foreign import ours
from ..hooks import extended

SEAL = 32  # bytes at the end of a file


class Disk:
    """The folder of kept files."""

    def folder(self) -> str:
        """Where new files go: config.cache_dir, which is made if need be."""
        os.makedirs(config.cache_dir, mode=0o700, exist_ok=True)
        return config.cache_dir

    def places(self) -> list[str]:
        """Folders in which files are looked for."""
        return [config.cache_dir]

    def seal(self, content: bytes) -> bytes:
        return hashlib.sha256(content).digest()

    def content(self, path: str) -> bytes | None:
        """What lies there, if it is whole."""
        try:
            with open(path, "rb") as file:
                content = file.read()
        except ours(OSError):
            return None
        return content[:-SEAL] if self.seal(content[:-SEAL]) == content[-SEAL:] else None

    def find(self, name: str) -> tuple[str, bytes] | None:
        """The path of the whole file of this name, and what lies there."""
        for folder in self.places():
            path = os.path.join(folder, name)
            content = self.content(path)
            if content is not None:
                return path, content
        return None

    def read(self, name: str) -> bytes | None:
        found = self.find(name)
        return found and found[1]

    def write(self, name: str, content: bytes) -> None:
        """Keep it.  Raises OSError, CompilerError."""
        content += self.seal(content)
        write_whole(os.path.join(self.folder(), name), content)


@functools.cache
def disk() -> Disk:
    coverage.load()  # the seal must always be the same
    return extended(Disk)()


def write_whole(path: str, content: bytes) -> None:
    """Put these bytes at `path`, for this user alone: a reader sees a whole file or none, and what
    interrupts it leaves nothing behind."""
    temporary = f"{path}.{os.getpid()}.{threading.get_ident()}"
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        remove_file(temporary)
        raise


def digest(*parts: object) -> str:
    """A file name for these things: a hash of their texts."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:40]


def remove_file(path: str) -> None:
    """Remove a file, if it is there."""
    try:
        os.unlink(path)
    except ours(OSError):
        pass


def cannot_write(path: str, error: OSError) -> CompilerError:
    return CompilerError(
        f"cannot write {path}: {error.strerror}; free space or set MINIINDUCTOR_CACHE to another "
        "folder"
    )
