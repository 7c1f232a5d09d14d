"""The folder of kept files, and the compiler's process: other users, damaged and planted files,
limits, temporaries, compilers that hang or do not exist, forks."""

import os
import stat
import subprocess
import sys
import time

import pytest
import torch
from test_runtime import SOURCE, launch

import miniinductor
import miniinductor.config
from miniinductor import records
from miniinductor.errors import CompilerError
from miniinductor import toolchain as builder
from miniinductor.toolchain import build_kernels, find_compiler
from miniinductor.toolchain import disk, temporary_folder

CONFIG = miniinductor.config


@pytest.fixture
def cache(tmp_path):
    with CONFIG.patch(cache_dir=str(tmp_path / "cache")):
        yield tmp_path / "cache"


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """Make CXX a script."""

    def choose(text):
        script = tmp_path / "compiler"
        script.write_text(f"#!/bin/sh\n{text}\n")
        script.chmod(0o755)
        monkeypatch.setenv("CXX", str(script))

    yield choose
    builder.compiler_version.cache_clear()


def mode_of(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def python(code, **environment):
    """The output of a Python program that can import what lies beside this file."""
    code = f"import sys; sys.path[:0] = {sys.path!r}\n{code}"
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert found.returncode == 0, found.stderr[-2000:]
    return found.stdout.strip()


# ---- where it lies -------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "environment, place",
    [
        ({"XDG_CACHE_HOME": "/xdg", "HOME": "/home/me"}, "/xdg/miniinductor"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/home/me"}, "/home/me/.cache/miniinductor"),
        ({"XDG_CACHE_HOME": "", "HOME": "/home/me"}, "/home/me/.cache/miniinductor"),
        ({"XDG_CACHE_HOME": "", "HOME": "~"}, ""),  # what expanduser gives a uid without a home
        ({"MINIINDUCTOR_CACHE": "/mine", "XDG_CACHE_HOME": "/xdg"}, "/mine"),
        ({"MINIINDUCTOR_CACHE": "~/mine", "HOME": "/home/me"}, "/home/me/mine"),
        ({"MINIINDUCTOR_CACHE": "~/mine", "XDG_CACHE_HOME": "", "HOME": "~"}, ""),
        ({"MINIINDUCTOR_CACHE": "relative"}, os.path.abspath("relative")),
    ],
)
def test_the_folder_follows_the_system(environment, place, monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    for name, value in ({"MINIINDUCTOR_CACHE": ""} | environment).items():
        monkeypatch.setenv(name, value)
    assert CONFIG.chosen_folder() == place


def test_without_a_home_the_folder_is_private_temporary_and_goes_at_exit():
    code = (
        "import os, miniinductor.config as config; config.cache_dir = ''\n"
        "from miniinductor.toolchain import temporary_folder, disk\n"
        "disk().write('a', b'b'); assert disk().read('a') == b'b'\n"
        "folder = disk().folder(); assert os.stat(folder).st_mode & 0o777 == 0o700\n"
        "child = os.fork()\n"
        "if not child: sys.exit()\n"
        "os.waitpid(child, 0); assert os.path.isdir(folder)  # the child did not remove it\n"
        "print(folder)"
    )
    assert not os.path.exists(python(code))


def test_folder_and_files_are_private_whatever_the_umask(cache):
    before = os.umask(0)
    try:
        build_kernels([(SOURCE % "21", "k")])
    finally:
        os.umask(before)
    [file] = cache.iterdir()
    assert mode_of(cache) == 0o700 and mode_of(file) == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_belongs_to_another_user_is_not_read(cache):
    disk().write("a", b"b")
    os.chown(cache / "a", 1234, 1234)
    assert disk().read("a") is None
    os.chown(cache, 1234, 1234)
    assert disk().folder() == temporary_folder(os.getpid())
    disk().write("a", b"c")
    assert disk().read("a") == b"c"


# ---- what is kept, and what goes -----------------------------------------------------------------
def test_kernels_that_share_machine_code_are_compiled_once(cache, monkeypatch):
    """Two kernels of one source may differ in their sizes alone, and have one job."""
    from miniinductor.codegen.triton import build

    compiled = []

    def compile_all(jobs):
        compiled.extend(jobs)
        return {job["kept"]: {"code": "Y29kZQ==", "about": {"name": "k"}} for job in jobs}

    monkeypatch.setattr(build, "compile_all", compile_all)
    job = {"kept": "k.cubin"}
    assert build.compile_and_keep([job, dict(job)]) == {}
    assert disk().read("k.cubin") == b'{"name": "k"}\ncode' and len(compiled) == 1


@pytest.mark.parametrize("name", ["k.cubin", "k.best"])
def test_a_kept_file_of_which_one_byte_has_changed_is_not_there(cache, name):
    """Machine code of GPU kernels and what was measured of them, too: all go through `disk()`."""
    from miniinductor.codegen.triton import build

    content = bytes(100)
    build.keep(name, content)
    whole = (cache / name).read_bytes()
    assert disk().read(name) == content and disk().find(name)
    for place in (0, 50, len(content), len(whole) - 1):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        (cache / name).write_bytes(damaged)
        assert disk().read(name) is None and disk().find(name) is None
    (cache / name).write_bytes(whole)
    assert disk().read(name) == content


# ---- the compiler's process ----------------------------------------------------------------------
@pytest.mark.parametrize("when", ["version", "compiling"])
def test_a_compiler_that_hangs_is_killed_with_what_it_has_started(cache, compiler, tmp_path, when):
    pids = tmp_path / "pids"
    hang = f"sleep 1000 & echo $$ $! >> {pids}; wait"
    answer = "echo 1" if when == "compiling" else hang
    compiler(f'case "$1" in -dump*) {answer};; *) {hang};; esac')
    gm, x = torch.fx.symbolic_trace(lambda x: (x.relu() + 25,)), torch.randn(7)
    with CONFIG.patch(compiler_seconds=1):
        compiled = miniinductor.compile_fx(gm, [x])
    assert torch.equal(compiled(x)[0], x.relu() + 25)
    [note] = compiled.record.notes_of("runs eagerly")
    assert "did not end within 1 seconds" in note and "compiler_seconds" in note
    time.sleep(0.1)
    for pid in pids.read_text().split():
        assert not os.path.exists(f"/proc/{pid}/exe"), "a process goes on"
    assert not cache.exists() or not list(cache.iterdir())


def test_cxx_is_read_as_a_shell_would(cache, compiler, monkeypatch):
    compiler('exec "$@"')  # as ccache is used
    monkeypatch.setenv("CXX", f"'{os.environ['CXX']}' g++ -O1")
    command = builder.compiler_command()
    assert command[1:3] == ["g++", "-O1"] and builder.compiler_version(tuple(command[:3]))
    [kernel] = build_kernels([(SOURCE % "26", "k")])
    assert torch.equal(launch(kernel), torch.full((8,), 26.0))


@pytest.mark.parametrize(
    "chosen, message",
    [
        ("ccahce g++", "CXX is 'ccahce g++', and there is no program 'ccahce'"),
        ("/no/such/g++", "CXX is '/no/such/g++', and there is no program '/no/such/g++'"),
        ("'g++", 'CXX is "\'g++", which no shell can read: No closing quotation'),
        ("", "needs a C++ compiler and found none: install g++"),
        (None, "needs a C++ compiler and found none: install g++"),
        ("false", "false refused a generated kernel"),
    ],
)
def test_a_compiler_that_does_not_exist_is_told_once(cache, monkeypatch, caplog, chosen, message):
    monkeypatch.setattr(records, "TOLD", set())
    monkeypatch.delenv("CXX", raising=False)
    if chosen is not None:
        monkeypatch.setenv("CXX", chosen)
    if not chosen:
        monkeypatch.setenv("PATH", str(cache))
    find_compiler.cache_clear()
    with pytest.raises(CompilerError) as error:
        build_kernels([(SOURCE % "27", "k")])
    assert message in str(error.value)
    for number, program in ((27, lambda x: (x.relu() + 27,)), (28, lambda x: (x.relu() + 28,))):
        # each graph says so in its record
        x = torch.randn(7)
        compiled = miniinductor.compile_fx(torch.fx.symbolic_trace(program), [x])
        assert torch.equal(compiled(x)[0], x.relu() + number)
        assert compiled.record.notes_of(message)
    told = [r.getMessage() for r in caplog.records if message in r.getMessage()]
    assert len(told) == (2 if chosen == "false" else 1)  # (what is refused is another kernel)


def test_a_fork_while_another_thread_compiles():
    """Every child of it can compile, too."""
    code = """
import os, signal, threading, torch, minidynamo

torch.set_num_threads(1)
x, ready, stop = torch.randn(8), threading.Event(), threading.Event()

def work():
    while not stop.is_set():
        def f(x):
            ready.set()
            return x.sin() + 1
        minidynamo.compile(f.__get__(1).__func__, backend="eager")(x)
        minidynamo.reset()

thread = threading.Thread(target=work)
thread.start()
ready.wait()
codes = []
for number in range(12):
    child = os.fork()
    if not child:
        signal.alarm(20)
        right = torch.allclose(minidynamo.compile(torch.cos, backend="eager")(x), x.cos())
        os._exit(0 if right else 1)
    codes.append(os.waitpid(child, 0)[1])
stop.set()
thread.join()
print(codes)
"""
    assert python(code) == str([0] * 12)
