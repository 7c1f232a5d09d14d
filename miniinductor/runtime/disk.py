"""Where what was built is kept: files in `config.cache_dir`, each with a seal at its end.

In:   a name and bytes.   Out: the bytes, in this process or a later one; None where there is no
whole file.

    >>> disk().write("greeting", b"hello")
    >>> disk().read("greeting")
    b'hello'

A file is written under another name and renamed, so a reader sees a whole file or none, and two
processes that write the same thing at once both end with the same one.  It ends with its SHA-256:
one that was cut short or damaged is not there.  A folder that cannot be written is read all the
same; a temporary one, which goes when the process ends, gets what is new.

extras/careful_disk.py adds what a machine with other users, and years, need.

Mirrors torch/_inductor/codecache.py.  Left out: remote caches.
"""

import atexit
import functools
import hashlib
import os
import shutil
import tempfile
import threading

from .. import config, coverage
from ..exceptions import CompilerError
from ..foreign import ours
from ..hooks import extended

SEAL = 32  # bytes at the end of a file


class Disk:
    """The folder of kept files."""

    def __init__(self) -> None:
        self.writable: set[str] = set()  # folders that were found to be

    def folder(self) -> str:
        """Where new files go: config.cache_dir, or a temporary folder of this process.  Raises
        CompilerError if there is neither."""
        folder = config.cache_dir
        if folder and self.can_write(folder):
            return folder
        return temporary_folder(os.getpid())

    def can_write(self, folder: str) -> bool:
        """Is it there, now, for us to write to?"""
        if folder in self.writable and os.access(folder, os.W_OK | os.X_OK):
            return True  # (os.access catches OSError)
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            if os.access(folder, os.W_OK | os.X_OK):
                # os.access says yes to root on read-only disks
                probe = os.path.join(folder, f"probe.{os.getpid()}.{threading.get_ident()}")
                try:
                    os.close(os.open(probe, os.O_CREAT | os.O_WRONLY, 0o600))
                finally:
                    remove_file(probe)
                self.writable.add(folder)
        except ours(OSError):
            self.writable.discard(folder)
        return folder in self.writable

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
        for folder in dict.fromkeys((config.cache_dir, self.folder())):
            path = os.path.join(folder, name)
            content = self.content(path) if folder else None
            if content is not None:
                return path, content
        return None

    def read(self, name: str) -> bytes | None:
        found = self.find(name)
        return found and found[1]

    def write(self, name: str, content: bytes) -> None:
        """Keep it.  Raises OSError, CompilerError."""
        write_whole(os.path.join(self.folder(), name), content + self.seal(content))


def disk() -> Disk:
    coverage.load()  # the seal must always be the same
    return the_disk()


def keep(name: str, content: bytes) -> None:
    """Write it.  Raises CompilerError where that fails."""
    try:
        disk().write(name, content)
    except ours(OSError) as error:
        raise cannot_write(name, error) from error


@functools.cache
def the_disk() -> Disk:
    return extended(Disk)()


@functools.cache
def temporary_folder(process: int) -> str:
    """A folder of the process of this number, which removes it when it ends.  (What it forks ends,
    too.)  Raises CompilerError."""
    try:
        folder = tempfile.mkdtemp(prefix=f"miniinductor-{process}-")
    except ours(OSError) as error:
        raise cannot_write(tempfile.gettempdir(), error) from error
    atexit.register(lambda: os.getpid() == process and shutil.rmtree(folder, ignore_errors=True))
    return folder


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


def remove_folder(path: str) -> None:
    """Remove a folder of files, if it is there.  (shutil.rmtree would swallow a TimeoutError of a
    signal's handler: it is an OSError, too.)"""
    try:
        for name in os.listdir(path):
            os.unlink(os.path.join(path, name))
        os.rmdir(path)
    except ours(OSError):
        pass


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
