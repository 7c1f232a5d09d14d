"""Exceptions that come from outside, at any moment, must leave the user's call; the next call is
right.

    python -m tests.soundness.foreign --count 1200 --modes eager,inductor,inductor-training

A case is (kind of exception, phase, program, moment).  The phase is what happens while the
exception arrives: the first call (capture, lowering, in training the backward half), the same
with a slow C++ compiler, one from a filled graph cache, another shape, calls whose guards are
checked in full, plain calls, plain calls while another tool's frame evaluator is installed.  The
moment is a part of the time that the phase takes when nothing disturbs it; where the phase was
over before anything arrived, it is repeated with an earlier one, so in every case that passes
something did arrive.

The C++ compiler is a script that keeps what g++ made of a source, so that a first call costs
little.
"""

import atexit
import contextlib
import ctypes
import functools
import gc
import linecache
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
import types
import unittest.mock
from typing import Any

import torch

import minidynamo
import miniinductor
from benchmarks.error_bound import too_far
from minidynamo.convert import convert_frame
from minidynamo.frame import frame_hook
from tests.other_evaluator import Evaluator

from . import runner
from .modes import Mode


class Stop(Exception):
    """A class of the user's."""


KINDS = {  # name -> (class, does another thread set it?)
    "timeout": (TimeoutError, False),
    "interrupt": (KeyboardInterrupt, False),
    "exit": (SystemExit, False),
    "own": (Stop, False),
    "runtime": (RuntimeError, False),
    "value": (ValueError, False),
    "memory": (MemoryError, False),
    "generator exit": (GeneratorExit, False),
    "async timeout": (TimeoutError, True),
    "async interrupt": (KeyboardInterrupt, True),
}
PHASES = ("first", "build", "warm", "shape", "guards", "calls", "beside")
KEPT = os.path.join(miniinductor.config.cache_dir, "kept-kernels")  # from run to run
STEADY = 0.02  # seconds for which calls are repeated
DEVICE = torch.ops.prim.device.default
COMPILING = ("first", "build", "warm", "shape")  # phases that compile something


# --- programs: (function, inputs of n rows) ------------------------------------------------------
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(6, 5), torch.nn.Linear(5, 3)
        self.scale, self.table = 2.0, {"a": [1.0, 2.0], "b": (3, 4)}

    def forward(self, x):
        hidden = torch.relu(self.first(x)) * self.scale + self.table["a"][0]
        return self.second(hidden) * self.table["b"][1]


def split(x):
    y = x.sin() * 3
    minidynamo.graph_break()
    with torch.no_grad():
        z = x.cos()
    return y + z, [y.sum(), {"z": z.clone().add_(1)}]


def state(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.t()
    return torch.softmax(y.float(), -1), torch.nn.functional.dropout(x, 0.5)


def loops(x):
    parts = []
    for i, column in enumerate(x.unbind(1)):
        parts.append(column * i if i % 2 else -column)
    return torch.stack(sorted(parts, key=lambda t: t.shape[0]), 1)


@functools.cache
def programs() -> dict:
    torch.manual_seed(0)
    return {"net": Net(), "split": split, "state": state, "loops": loops}


# --- the compiler ---------------------------------------------------------------------------------
COMPILER = """#!/bin/sh
# What g++ made of the same source before, after a while; g++ itself where there is nothing yet.
case "$*" in -dump*) exec g++ "$@" ;; esac
for argument; do
    case $argument in
        *.cpp) source=$argument ;;
        *.so) target=$argument ;;
    esac
done
sleep SECONDS
kept="$(dirname "$0")/$(sha256sum < "$source" | cut -c 1-40).so"
if [ ! -f "$kept" ]; then
    g++ "$@" && cp "$target" "$kept.$$" && mv "$kept.$$" "$kept"
    exit
fi
cp "$kept" "$target"
"""


@functools.cache
def compiler(seconds: float) -> str:
    """The path of a compiler that takes so long."""
    os.makedirs(KEPT, exist_ok=True)
    path = os.path.join(KEPT, f"g++-{seconds}")
    with open(f"{path}.{os.getpid()}", "w") as file:
        file.write(COMPILER.replace("SECONDS", str(seconds)))
    os.chmod(file.name, 0o755)
    os.replace(file.name, path)
    return path


@functools.cache
def warm_folder() -> str:
    """Where kernels and graphs of undisturbed calls are kept, for this process."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@functools.cache
def other_evaluator() -> Evaluator:
    return Evaluator()


# --- cases ---------------------------------------------------------------------------------------
def cases(count: int, first: int) -> list:
    names = ("net", "split", "state", "loops")
    found = []
    for number in range(first, first + count):
        draw = random.Random(number)
        moment = round(draw.random() * 1.02, 4)
        phase, name = draw.choice(PHASES), draw.choice(names)
        if phase == "beside":  # plain Python: what arrives in a `with` may leave its state behind
            name = {"split": "net", "state": "loops"}.get(name, name)
        found.append((list(KINDS)[number % len(KINDS)], phase, name, moment))
    return found


def places(frame: types.FrameType | None) -> list[str]:
    """Where it is executed, innermost first."""
    found = []
    while frame is not None:
        code = frame.f_code
        found.append(f"{code.co_filename}:{frame.f_lineno} {code.co_name}")
        frame = frame.f_back
    return found


def is_not_promised(frame: types.FrameType | None) -> bool:
    """Is it a moment for which miniinductor/errors.py promises nothing?

    C++ asks a tensor without data for its device: what is raised there ends the process, since
    torch's function is `noexcept`.  Or Python's linecache reads a file, or traceback is about
    to ask it: it takes an OSError (TimeoutError is one) for a file that is gone, and a MemoryError
    for too long a file.  Or C++
    asks a size for its number, and takes what is raised for another type."""
    while frame is not None:
        if frame.f_code.co_filename in (linecache.__file__, traceback.__file__):
            return True
        if frame.f_code.co_name == "maybe_as_int":
            return True
        if any(frame.f_locals.get(name) is DEVICE for name in ("op", "func")):
            return True
        frame = frame.f_back
    return False


class Arrival:
    """An exception that arrives `seconds` after `with` begins, unless the block is over by then."""

    def __init__(self, kind: str, seconds: float):
        self.cls, self.from_thread = KINDS[kind]
        self.seconds = max(seconds, 1e-6)
        self.sent, self.open = False, False
        self.printed: list = []
        self.where: list[str] = []

    def handler(self, number, frame):
        if self.open and is_not_promised(frame):
            signal.setitimer(signal.ITIMER_REAL, 1e-4)
        elif self.open:
            self.sent, self.open = True, False
            self.where = places(frame)
            raise self.cls("from the handler")

    def thread(self, target: int) -> None:
        time.sleep(self.seconds)
        sys.setswitchinterval(10)  # the other thread stays where it is
        while self.open and is_not_promised(sys._current_frames()[target]):
            time.sleep(1e-4)
        if self.open:
            self.sent, self.open = True, False
            self.where = places(sys._current_frames()[target])
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(target), ctypes.py_object(self.cls)
            )
        sys.setswitchinterval(1e-4)

    def during(self, work) -> BaseException | None:
        """What left work()."""
        before = sys.unraisablehook, signal.getsignal(signal.SIGALRM), sys.getswitchinterval()
        sys.unraisablehook = self.printed.append
        sys.setswitchinterval(1e-4)
        setter = threading.Thread(target=self.thread, args=(threading.get_ident(),))
        caught = None
        try:
            self.open = True
            if self.from_thread:
                setter.start()
            else:
                signal.signal(signal.SIGALRM, self.handler)
                signal.setitimer(signal.ITIMER_REAL, self.seconds)
            work()
            self.open = False
            if self.from_thread:
                setter.join()
            for _ in range(100):  # one that was set at the end arrives here, or in join()
                pass
        except BaseException as error:
            caught = error.with_traceback(None)
        self.open = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before[1])
        if self.from_thread:
            setter.join()
        sys.unraisablehook = before[0]
        sys.setswitchinterval(before[2])
        return caught


# --- what is run ---------------------------------------------------------------------------------
class Situation:
    """One program in one phase: `prepare()`, then `run()` while something may arrive."""

    def __init__(self, phase: str, name: str, mode: Mode, folder: str):
        self.phase, self.mode, self.folder = phase, mode, folder
        self.function = programs()[name]
        self.compiled = mode.compile(self.function)
        self.training = mode.training

    def inputs(self, rows: int) -> torch.Tensor:
        return torch.linspace(-1, 1, rows * 6).reshape(rows, 6).requires_grad_(self.training)

    def results(self, function: Any, rows: int = 4) -> list:
        torch.default_generator.manual_seed(7)  # torch.manual_seed catches OSError in linecache
        x = self.inputs(rows)
        leaves = torch.utils._pytree.tree_leaves(function(x))
        if self.training:
            sum(t.float().square().sum() for t in leaves if t.requires_grad).backward()
        return [*[t.detach() for t in leaves], *([x.grad] if self.training else [])]

    def prepare(self) -> None:
        """As it is before something arrives."""
        minidynamo.reset()
        os.environ["CXX"] = compiler(0.15 if self.phase == "build" else 0.0)
        miniinductor.config.cache_dir = warm_folder()
        if self.phase in ("shape", "guards", "calls", "beside"):
            self.results(self.compiled)
        if self.phase in ("first", "build", "shape"):  # nothing of it is on disk
            miniinductor.config.cache_dir = tempfile.mkdtemp(dir=self.folder)

    def run(self) -> None:
        if self.phase == "shape":
            self.results(self.compiled, 9)
        elif self.phase in COMPILING:
            self.results(self.compiled)
        else:
            self.repeat()

    def repeat(self) -> None:
        """Call it again and again, for a short time."""
        end = time.perf_counter() + STEADY
        while time.perf_counter() < end:
            if self.phase == "guards":  # a write that the memo of the guards notices
                vars(self.function)["unrelated"] = end
            self.results(self.compiled)


def thread_state() -> dict:
    """What no call may leave changed."""
    return {
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "autocast": [torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")],
        "autocast nesting": miniinductor.errors.autocast_nesting(),
        "dispatch modes": torch._C._len_torch_dispatch_stack(),
        "dispatch keys": dispatch_keys(),
        "function modes": torch._C._len_torch_function_stack(),
        "garbage collection": gc.isenabled(),
        "recursion limit": sys.getrecursionlimit(),
        "hook": frame_hook.get_callback(),
        "compiling": getattr(convert_frame.COMPILING, "active", False),
        "saved-tensor hooks": torch._C._autograd._top_saved_tensors_default_hooks(False),
        "options": {k: v for k, v in miniinductor.config.switches().items() if k != "cache_dir"},
        "lock": lock_is_free(),
    }


def dispatch_keys() -> str:
    """The keys that this thread adds to each op's, and those that it leaves out."""
    sets = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    return f"{sets}"


def lock_is_free() -> bool:
    """Can another thread compile?"""
    answers: list = []

    def ask() -> None:
        answers.append(convert_frame.LOCK.acquire(timeout=5))
        if answers[0]:
            convert_frame.LOCK.release()

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return answers[0]


def left_files(folder: str) -> list:
    """Temporary files and folders of builds."""
    found = []
    for root, folders, files in os.walk(folder):
        found += [name for name in folders if name.startswith("build-")]
        found += [name for name in files if not name.endswith((".so", ".graph", ".py"))]
    return found


DURATIONS: dict = {}


def duration(situation: Situation, key: tuple) -> float:
    """Seconds that the phase takes when nothing arrives; not the first time, which fills caches."""
    if key not in DURATIONS:
        for _ in range(2):
            situation.prepare()
            begin = time.perf_counter()
            situation.run()
            DURATIONS[key] = time.perf_counter() - begin
    return DURATIONS[key]


def check(case: tuple, mode: Mode) -> str:
    kind, phase, name, moment = case
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(unittest.mock.patch.dict(os.environ))
        stack.enter_context(miniinductor.config.patch(cache_dir=folder))
        # Around everything: Python itself may be interrupted in the `__exit__` of a `with`.
        stack.enter_context(torch.set_grad_enabled(mode.training))
        stack.enter_context(minidynamo.config.patch(raise_internal_errors=False))
        stack.enter_context(miniinductor.config.patch(raise_internal_errors=False))
        untouched = thread_state()
        situation = Situation(phase, name, mode, folder)
        seconds = moment * duration(situation, (phase, name, mode.name))
        if changed := change_of(untouched):
            return f"{changed} though nothing arrived"
        for _ in range(12):
            arrival = Arrival(kind, seconds)
            situation.prepare()
            before = thread_state()
            with other_evaluator() if phase == "beside" else contextlib.nullcontext():
                caught = arrival.during(situation.run)
            if arrival.sent or caught is not None:
                return difference(situation, arrival, caught, before)
            seconds *= 0.7  # it was over already
        return "nothing arrived"


def change_of(before: dict) -> str:
    """What of the thread's state is not as it was before; "" where all is."""
    after = thread_state()
    for name, value in before.items():
        if name != "hook" or value is not None:  # the first compilation installs it
            if after[name] != value:
                return f"{name} was {value} and is {after[name]}"
    return ""


def difference(situation: Situation, arrival: Arrival, caught, before: dict) -> str:
    if changed := change_of(before):
        return f"{changed} after {caught!r}"
    if arrival.sent and caught is None and not arrival.printed:
        told = [record.error or record.skipped for record in minidynamo.records.frames]
        where = "\n".join(arrival.where[:12])
        return f"{arrival.cls.__name__} was swallowed; {[text for text in told if text]}\n{where}"
    if caught is not None and type(caught) is not arrival.cls:
        return f"{arrival.cls.__name__} became {caught!r}"
    if left := left_files(situation.folder) + left_files(warm_folder()):
        return f"files were left after {caught!r}: {left}"
    for rows in (4, 9) if situation.phase == "shape" else (4,):
        expected = situation.results(situation.function, rows)
        for ours, theirs in zip(situation.results(situation.compiled, rows), expected, strict=True):
            if too_far(ours, theirs, 40, "several steps of training"):
                return f"the next call is wrong after {caught!r}: {ours} instead of {theirs}"
    if errors := [record.error for record in minidynamo.records.frames if record.error]:
        return f"the next call failed inside after {caught!r}: {errors[-1]}"
    if not any(record.graph is not None for record in minidynamo.records.frames):
        return f"nothing is compiled any more after {caught!r}"
    return ""


if __name__ == "__main__":
    runner.main("tests.soundness.foreign", "eager,aot_eager,inductor,inductor-training", 300)
