"""Where what was built is kept: files in `config.cache_dir`, each with a seal at its
end.

In:   a name and bytes.   Out: the bytes, in this process or a later one; None where there is no
whole file.

    >>> disk().write("greeting", b"hello")
    >>> disk().read("greeting")
    b'hello'

A file is written under another name and renamed, so a reader sees a whole file or none, and two
processes that write the same thing at once both end with the same one.  It ends with its SHA-256:
one that was cut short or damaged is not there, and is made again.  A folder that others could have
written, or that cannot be written, is not used: a temporary one takes its place.

Mirrors torch/_inductor/codecache.py.  Left out: remote caches; a limit of the folder's size.
"""

import atexit
import functools
import hashlib
import os
import shutil
import stat
import tempfile
import threading

from .. import config
from ..errors import CompilerError, ours
from ..records import LOG

SEAL = 32  # bytes at the end of a file


class Disk:
    """The folder of kept files."""

    def folder(self) -> str:
        """config.cache_dir, which is made if need be; or a folder of this process alone."""
        folder = config.cache_dir
        try:
            if folder:
                os.makedirs(folder, mode=0o700, exist_ok=True)
                if is_ours(os.stat(folder)) and os.access(folder, os.W_OK | os.X_OK):
                    return folder
        except ours(OSError):
            pass
        return temporary_folder(os.getpid())

    def find(self, name: str) -> tuple[str, bytes] | None:
        """The path of the whole file of this name, and what lies there."""
        path = os.path.join(self.folder(), name)
        try:
            found = os.stat(path)
            if not (stat.S_ISREG(found.st_mode) and is_ours(found)):
                return None
            with open(path, "rb") as file:
                content = file.read()
        except ours(OSError):
            return None
        is_whole = hashlib.sha256(content[:-SEAL]).digest() == content[-SEAL:]
        return (path, content[:-SEAL]) if is_whole else None

    def read(self, name: str) -> bytes | None:
        found = self.find(name)
        return found and found[1]

    def write(self, name: str, content: bytes) -> None:
        """Keep it.  Raises OSError."""
        content += hashlib.sha256(content).digest()
        write_whole(os.path.join(self.folder(), name), content)


def is_ours(found: os.stat_result) -> bool:
    """This user's, and nobody else may write it?  What is kept here is run."""
    return found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


@functools.cache
def disk() -> Disk:
    return Disk()


@functools.cache
def temporary_folder(process: int) -> str:
    """A folder of the process of this number, which removes it when it ends; said once.  Raises
    CompilerError."""
    try:
        folder = tempfile.mkdtemp(prefix="miniinductor-")
    except ours(OSError) as error:
        raise cannot_write(tempfile.gettempdir(), error) from error
    if config.cache_dir:
        LOG.warning(
            "compiled kernels are not kept in %s, which this user alone must be able to write; "
            "set MINIINDUCTOR_CACHE to another folder",
            config.cache_dir,
        )
    atexit.register(remove_folder, folder, process)
    return folder


def remove_folder(folder: str, process: int) -> None:
    """Remove it, if this is the process of this number."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


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
