"""(coverage) The folder of kept files on a machine with other users, small disks, and for years.

In:   `Disk` (disk.py).  Out: one that also

    is always there  a folder that cannot be written is read; what is new goes to a temporary one,
                     which goes when the process ends
    is private       the folder has mode 0700, its files 0600, whatever the umask is
    trusts itself    a folder or file of another user, or one that others may write, is not read;
                     each file is sealed with a key that only this user can read, so that one which
                     somebody else has put there is not there
    keeps what works a library whose sections are not all there is not kept
    stays small      `config.cache_bytes`; what was used least recently goes first
    cleans up        what processes that were killed have left is removed

    >>> disk().folder()         # such as /home/me/.cache/miniinductor
    '...'

Whoever can read this user's files can forge what lies here, and could as well change the user's
programs.  Kept files of two users, or of one user with two keys, do not meet: each builds its own.

PyTorch: `/tmp/torchinductor_USER`, without a check of who owns it; no limit.
"""

import atexit
import contextlib
import functools
import hmac
import logging
import os
import re
import secrets
import shutil
import stat
import struct
import tempfile
import threading
import time
from collections.abc import Iterator

from .. import config
from ..exceptions import CompilerError
from ..foreign import ours
from ..hooks import extends
from .disk import Disk, cannot_write, remove_file, write_whole

LOG = logging.getLogger("miniinductor")
WRITES_BETWEEN = 100  # how often the folder's size is looked at: after the first write, then these
KEPT_WHEN_FULL = 0.8  # of config.cache_bytes: what is left when the rest has gone
# a temporary file of a dead process goes when it is as old as this, in seconds: the process may be
# one of another machine, or of a container, that has the same folder
OLD = 3600.0
# names of temporary things, with the number of the process that has made them
TEMPORARY = (
    re.compile(r"build-(?P<process>\d+)-\d+-\d+"),  # a folder, see careful_compiler.py
    # a file, see write_whole and gpu/worker.py
    re.compile(r"[^.]+(\.[a-z]\w*)*\.(?P<process>\d+)\.\d+(\.\d+)?"),
)
OF_PROCESS = re.compile(r"miniinductor-(?P<process>\d+)-\w+")  # see temporary_folder


@extends(Disk)
class CarefulDisk(Disk):
    """What a folder that others might write to, and that grows, needs."""

    def __init__(self) -> None:
        super().__init__()
        self.writable: set[str] = set()  # folders that were found to be
        self.writes = 0
        self.told: set[str] = set()  # folders that were refused

    def folder(self) -> str:
        folder = config.cache_dir
        if folder and self.can_write(folder):
            return folder
        return temporary_folder(os.getpid())

    def places(self) -> list[str]:
        """A folder that cannot be written is read all the same."""
        return [folder for folder in dict.fromkeys((config.cache_dir, self.folder())) if folder]

    def can_write(self, folder: str) -> bool:
        """Is it there, now, for us to write to, and nobody else?"""
        if folder in self.writable and os.access(folder, os.W_OK | os.X_OK):
            return True  # (os.access catches OSError)
        try:
            make_private(folder)
            if self.is_trusted(folder) and os.access(folder, os.W_OK | os.X_OK):
                # os.access says yes to root on read-only disks
                probe = os.path.join(folder, f"probe.{os.getpid()}.{threading.get_ident()}")
                try:
                    os.close(os.open(probe, os.O_CREAT | os.O_WRONLY, 0o600))
                finally:
                    remove_file(probe)
                self.writable.add(folder)
        except ours(OSError) as error:
            self.tell(folder, str(error))
            self.writable.discard(folder)
        return folder in self.writable

    def is_trusted(self, folder: str) -> bool:
        """Is it ours alone?  One that we own, and that others may write, becomes so."""
        found = os.stat(folder)
        if found.st_uid != os.geteuid():
            self.tell(folder, f"it belongs to user {found.st_uid}")
            return False
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            try:
                os.chmod(folder, 0o700)
            except ours(OSError):
                self.tell(folder, "other users may write to it")
                return False
        return True

    def tell(self, folder: str, reason: str) -> None:
        """Once."""
        if folder not in self.told:
            self.told.add(folder)
            LOG.warning(
                "compiled kernels are not kept in %s: %s; set MINIINDUCTOR_CACHE to a folder of "
                "your own",
                folder,
                reason,
            )

    def seal(self, content: bytes) -> bytes:
        return hmac.digest(user_key(), content, "sha256")

    def content(self, path: str) -> bytes | None:
        try:
            found = os.stat(path)
        except ours(OSError):
            return None
        is_file = stat.S_ISREG(found.st_mode)  # a pipe would be waited for
        is_ours = found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        content = super().content(path) if is_file and is_ours else None
        if content is not None:
            try:
                os.utime(path)  # used now: see make_room
            except ours(OSError):
                pass  # a folder that cannot be written
        return content

    def write(self, name: str, content: bytes) -> None:
        if name.endswith(".so") and not is_whole_library(content):
            raise CompilerError(f"the linker's result is cut short ({len(content)} bytes)")
        try:
            super().write(name, content)
        except ours(FileNotFoundError):  # another process has removed the folder in between
            super().write(name, content)
        if self.writes % WRITES_BETWEEN == 0:
            sweep(self.folder())
            make_room(self.folder())
        self.writes += 1


@functools.cache
def temporary_folder(process: int) -> str:
    """A folder of the process of this number, which removes it when it ends.  (What it forks ends,
    too.)  Raises CompilerError."""
    try:
        folder = tempfile.mkdtemp(prefix=f"miniinductor-{process}-")
    except ours(OSError) as error:
        raise cannot_write(tempfile.gettempdir(), error) from error
    atexit.register(remove_temporary, folder, process)
    return folder


def remove_temporary(folder: str, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def make_private(folder: str) -> None:
    """Make the folder, and those above it that are missing, for us alone, whatever the umask."""
    above = os.path.dirname(os.path.abspath(folder))
    if not os.path.isdir(above):
        make_private(above)
    if not os.path.isdir(folder):
        with contextlib.suppress(FileExistsError):  # another process was faster
            os.mkdir(folder, 0o700)


# --- the user's key -------------------------------------------------------------------------------
@functools.cache
def user_key() -> bytes:
    """32 random bytes that this user's processes share.  They lie where caches of the user belong,
    wherever `config.cache_dir` is; where that cannot be written, this process has its own."""
    folder = config.user_folder()
    try:
        if not folder:
            return secrets.token_bytes(32)
        make_private(folder)
        path = os.path.join(folder, "key")
        return read_key(path) or new_key(path)
    except ours(OSError):
        return secrets.token_bytes(32)


def read_key(path: str) -> bytes | None:
    """The key that lies there, if it is this user's alone."""
    try:
        with open(path, "rb") as file:
            found, key = os.fstat(file.fileno()), file.read()
    except ours(OSError):
        return None
    is_private = found.st_uid == os.geteuid() and not found.st_mode & 0o077
    return key if is_private and len(key) == 32 else None


def new_key(path: str) -> bytes:
    """Make one.  Of several processes that do so at once one wins.  Raises OSError."""
    own = f"{path}.{os.getpid()}.{secrets.randbits(32)}"
    write_whole(own, secrets.token_bytes(32))
    try:
        try:
            os.link(own, path)  # fails if there is one
        except ours(FileExistsError):
            if read_key(path) is None:  # damaged, or readable for others
                os.replace(own, path)
    finally:
        remove_file(own)
    key = read_key(path)
    if key is None:
        raise OSError(f"{path} cannot be read")
    return key


# --- libraries ------------------------------------------------------------------------------------
def is_whole_library(content: bytes) -> bool:
    """Does an ELF file of 64 bits have all of its sections and segments?  Other formats are
    taken as they are."""
    if content[:4] != b"\x7fELF":
        return content[:4] in (b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")  # Mach-O
    if content[4:6] != b"\x02\x01":  # not 64 bits, little endian
        return True
    try:
        segments, sections = struct.unpack_from("<QQ", content, 32)
        _, one_segment, count, one_section, many = struct.unpack_from("<5H", content, 52)
        if not sections or sections + one_section * many > len(content):
            return False
        parts = [
            struct.unpack_from("<Q16xQ", content, segments + one_segment * n + 8)
            for n in range(count)
        ]
        for n in range(many):
            at = sections + one_section * n
            [kind] = struct.unpack_from("<I", content, at + 4)
            if kind != 8:  # SHT_NOBITS has no bytes in the file
                parts.append(struct.unpack_from("<QQ", content, at + 24))
    except struct.error:
        return False
    return all(start + size <= len(content) for start, size in parts)


# --- what has to go -------------------------------------------------------------------------------
def sweep(folder: str, age: float = OLD) -> None:
    """Remove what processes that are dead have left, in the folder and beside the temporary ones,
    if nobody has touched it for so many seconds."""
    for entry in entries(folder):
        for pattern in TEMPORARY:
            match = pattern.fullmatch(entry.name)
            if match and is_left(entry, int(match["process"]), age):
                remove(entry)
    for entry in entries(tempfile.gettempdir()):
        match = OF_PROCESS.fullmatch(entry.name)
        if match and entry.is_dir(follow_symlinks=False):
            if is_left(entry, int(match["process"]), age):
                remove_folder(entry.path)


def entries(folder: str) -> "Iterator[os.DirEntry[str]]":
    try:
        with os.scandir(folder) as found:
            yield from found
    except ours(OSError):
        return


def is_left(entry: "os.DirEntry[str]", process: int, age: float) -> bool:
    """Is it ours, of a process that is dead, and old?"""
    try:
        found = entry.stat(follow_symlinks=False)
        if found.st_uid != os.geteuid() or time.time() - found.st_mtime < age:
            return False
        os.kill(process, 0)
    except ours(ProcessLookupError):
        return True
    except ours(OSError, OverflowError):
        return False
    return False


def remove(entry: "os.DirEntry[str]") -> None:
    if entry.is_dir(follow_symlinks=False):
        remove_folder(entry.path)
    else:
        remove_file(entry.path)


def remove_folder(path: str) -> None:
    """Remove a folder of files, if it is there.  (shutil.rmtree would swallow a TimeoutError of a
    signal's handler: it is an OSError, too.)"""
    try:
        for name in os.listdir(path):
            os.unlink(os.path.join(path, name))
        os.rmdir(path)
    except ours(OSError):
        pass


def make_room(folder: str) -> None:
    """Remove what has not been used for longest, while all files together have more than
    config.cache_bytes.  (A library that is loaded stays in memory when its file goes.)"""
    found = []
    for entry in entries(folder):
        try:
            about = entry.stat(follow_symlinks=False)
        except ours(OSError):
            continue  # another process has removed it
        # (what is being written is not ours to count, until it is old)
        is_whole = TEMPORARY[1].fullmatch(entry.name) is None or time.time() - about.st_mtime > OLD
        if stat.S_ISREG(about.st_mode) and is_whole:
            found.append((about.st_mtime, about.st_size, entry.path))
    total = sum(size for _, size, _ in found)
    if total <= config.cache_bytes:
        return
    for _, size, path in sorted(found):
        if total <= KEPT_WHEN_FULL * config.cache_bytes:
            break
        remove_file(path)
        total -= size
