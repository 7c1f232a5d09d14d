"""Every call of the operating system that the compilers make fails in turn.

    python tests/faults.py                  # each call of each stage: 10 minutes on 2 cores
    python tests/faults.py --sample 8       # some of them
    python tests/faults.py --jobs 8         # all of them, shared out among 8 processes
    python tests/faults.py --processes 8    # so many processes at once, in one folder

Stages: a cold compilation; a warm start, which finds everything on disk; a write that makes others
go.  A run fails the n-th call (`open`, `write`, `rename`, `mkdir`, `unlink`, `stat`, `listdir`,
`link`, `chmod`, `utime`, starting the compiler, mapping a library) with one of several errors.
Then the call's result must be right, the next call's, too, nothing may be left behind, and nothing
of it may have been a fault of ours.  `malloc` cannot be made to fail from Python: a MemoryError is
raised in its place, and must leave the call, as it leaves plain Python.
"""

import argparse
import builtins
import contextlib
import ctypes
import errno
import itertools
import os
import random
import re
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

import torch

import minidynamo
import miniinductor.config
from miniinductor import toolchain as compiler
from miniinductor.toolchain import disk

disk()  # loads coverage

NAMES = "open replace mkdir makedirs unlink rmdir stat fstat listdir scandir link chmod utime close"
NAMES += " kill"
CALLS = [
    *[(os, name) for name in NAMES.split()],
    (builtins, "open"),
    (subprocess, "Popen"),
    (ctypes, "CDLL"),
    (tempfile, "mkdtemp"),
]
ERRORS = [errno.ENOSPC, errno.EACCES, errno.EIO, errno.EMFILE, errno.EROFS]
STAGES = ("cold", "warm")
TEMPORARY = re.compile(r"build-\d+|.*\.\d+\.\d+$")


class File:
    """An open file, of which writing fails."""

    def __init__(self, file, fail):
        self.file, self.fail = file, fail

    def __enter__(self):
        self.file.__enter__()
        return self

    def __exit__(self, *error):
        return self.file.__exit__(*error)

    def __getattr__(self, name):
        return getattr(self.file, name)

    def write(self, content):
        self.fail("write")
        return self.file.write(content)


class Faults:
    """Within it the n-th call that our files make raises `error`; n=None only counts."""

    def __init__(self, n=None, error=None):
        self.n, self.error, self.calls = n, error, []

    def fail(self, name):
        self.calls.append(name)
        if len(self.calls) - 1 == self.n:
            raise self.error

    def wrapped(self, name, call):
        def checked(*args, **kwargs):
            caller = sys._getframe(1).f_globals.get("__name__", "")
            if not caller.startswith(("miniinductor", "minidynamo")):
                return call(*args, **kwargs)
            self.fail(name)
            result = call(*args, **kwargs)
            is_written = name == "open" and call is REAL_OPEN and "w" in str(args[1:2])
            return File(result, self.fail) if is_written else result

        return checked

    def __enter__(self):
        self.stack = contextlib.ExitStack()
        for home, name in CALLS:
            call = getattr(home, name)
            self.stack.callback(setattr, home, name, call)
            setattr(home, name, self.wrapped(name, call))
        return self

    def __exit__(self, *error):
        self.stack.close()


REAL_OPEN = builtins.open


def program(x):
    return torch.relu(x * 3 + 1) - x.amax(-1, keepdim=True)


def forget():
    """As a new process begins."""
    minidynamo.reset()
    torch.manual_seed(0)
    for module in (compiler,):
        for value in vars(module).values():
            if getattr(value, "__module__", "") == module.__name__ and hasattr(
                value, "cache_clear"
            ):
                value.cache_clear()


def is_right():
    x = torch.randn(5, 7)
    return torch.equal(minidynamo.compile(program)(x), program(x))


def prepare(stage):
    forget()
    if stage != "cold":
        assert is_right()
        forget()


def act(stage):
    return is_right()


def left_behind(folder):
    return [p.name for p in Path(folder).rglob("*") if TEMPORARY.fullmatch(p.name)]


def run(stage, n=None, error=None):
    """The calls that were made.  Raises AssertionError where something is not as it has to be."""
    with tempfile.TemporaryDirectory() as folder, miniinductor.config.patch(cache_dir=folder):
        prepare(stage)
        with Faults(n, error) as faults:
            try:
                assert act(stage), "another result"
            except MemoryError as raised:
                assert raised is error
        assert not minidynamo.counters["errors"], minidynamo.counters["errors"]
        forget()
        assert is_right(), "another result in the next call"
        forget()
        assert is_right(), "another result in the next process"
        removing = n is not None and faults.calls[n : n + 1] in (["unlink"], ["rmdir"])
        assert removing or not left_behind(folder), left_behind(folder)
    return faults.calls


def cases(sample, seed):
    """(stage, number of the call, its name, error)."""
    found = []
    for stage in STAGES:
        for n, name in enumerate(run(stage)):
            errors = [OSError(code, os.strerror(code), "a file") for code in ERRORS]
            found += [(stage, n, name, error) for error in errors]
            found.append((stage, n, name, MemoryError("no memory")))
    return random.Random(seed).sample(found, min(sample, len(found))) if sample else found


def check(sample=0, seed=0, part=0, parts=1):
    """(number of runs, what went wrong), of every `parts`-th case from number `part` on."""
    wrong, count = [], 0
    with tempfile.TemporaryDirectory() as home:
        os.environ["XDG_CACHE_HOME"] = home
        is_right()  # what is imported late is there
        for stage, n, name, error in cases(sample, seed)[part::parts]:
            count += 1
            try:
                run(stage, n, error)
            except Exception as failure:
                text = f"{type(failure).__name__}: {failure}"
                wrong.append(f"{stage}: call {n}, {name}: {error!r}: {text[:300]}")
                print(wrong[-1], flush=True)
            if count % 100 == 0:
                print(f"{count} runs, {len(wrong)} wrong", flush=True)
    return count, wrong


def shared_out(jobs):
    """All cases, by so many processes, each with folders of its own."""
    command = [sys.executable, __file__, "--jobs", str(jobs), "--part"]
    started = [
        subprocess.Popen([*command, str(part)], stdout=subprocess.PIPE, text=True)
        for part in range(jobs)
    ]
    texts = [process.communicate()[0] for process in started]
    counts = [
        int(found[1]) for text in texts if (found := re.search(r"\[faults\] (\d+) runs", text))
    ]
    ended = zip(started, texts)
    return sum(counts), [text for process, text in ended if process.returncode]


def in_one_folder(seed, folder, runs):
    """One of several processes that share a folder, with faults at random."""
    chooser, wrong = random.Random(seed), []
    with miniinductor.config.patch(cache_dir=folder):
        for _ in range(runs):
            forget()
            code = chooser.choice(ERRORS)
            with Faults(chooser.randrange(80), OSError(code, os.strerror(code), "a file")):
                try:
                    if not act(chooser.choice(STAGES)):
                        wrong.append("another result")
                except Exception:
                    wrong.append(traceback.format_exc()[-1500:])
            forget()
            if not is_right() or minidynamo.counters["errors"]:
                wrong.append(f"the next call: {minidynamo.counters['errors']}")
    return runs, wrong


def several(processes, runs):
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--folder", folder, "--runs", str(runs)]
        environment = os.environ | {"XDG_CACHE_HOME": folder + "/home"}
        started = [
            subprocess.Popen(
                [*command, "--seed", str(n)], stdout=subprocess.PIPE, text=True, env=environment
            )
            for n in range(processes)
        ]
        texts = [process.communicate()[0] for process in started]
        left = left_behind(folder)
    failed = [text for process, text in zip(started, texts) if process.returncode]
    return processes * runs, failed + left


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=0)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--part", type=int)
    parser.add_argument("--folder")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.folder:
        count, wrong = in_one_folder(options.seed, options.folder, options.runs)
    elif options.processes:
        count, wrong = several(options.processes, options.runs)
    elif options.jobs > 1 and options.part is None:
        count, wrong = shared_out(options.jobs)
    else:
        count, wrong = check(options.sample, options.seed, options.part or 0, options.jobs)
    kinds = itertools.groupby(sorted(wrong))
    print(f"[faults] {count} runs, {len(wrong)} wrong")
    for text, same in kinds:
        print(f"  {len(list(same))} x {text}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
