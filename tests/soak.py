"""One process that compiles, calls, resets, fails, forks and evicts for half an hour: flat memory.

    python tests/soak.py                    # 30 minutes; prints a line a minute
    python tests/soak.py --seconds 60
    python tests/soak.py --alone            # without torch.compile: the growth is ours
    python tests/soak.py --alone --blame    # and what Python has more of at the end

Each round is one of: a random program (of tests/sweeps/graphs.py) compiled and called at two sizes;
functions made anew; training; a program that raises; threads that compile at once; a fork whose
child compiles; a reset; files of the cache that are removed or cut short; torch.compile beside it.
A result that differs from eager's, an internal error, or memory that grows by more than 4 KiB a
round after the first quarter, is an error; by 2 MiB in all it may grow in any case, so that a busy
machine's few rounds are none.

torch.compile keeps some 45 KiB of each program that it has compiled, also after its own reset, in a
process without minidynamo, too.  So it compiles in the first quarter; later what it has made is
called, beside programs that we compile.
"""

import argparse
import collections
import contextlib
import gc
import os
import random
import re
import resource
import signal
import sys
import tempfile
import threading
import time
import traceback
import tracemalloc
from pathlib import Path

import torch

import minidynamo
import miniinductor.config
from benchmarks.error_bound import assert_near, tolerance, too_far

GROWTH = 4 * 1024  # bytes a round
NOISE = 2 << 20  # bytes in all: what the allocator takes at once
# an eighth of the bound of float32, in bounds of float64
TIMES_OF_32 = tolerance(torch.float32) / tolerance(torch.float64) / 8
OPS = ("relu", "sin", "cos", "exp", "abs", "sigmoid", "tanh", "neg", "square", "sqrt().nan_to_num")


def nudge(y):
    """Off by a rounding of float32, every other number up and the rest down."""
    signs = torch.arange(y.numel()).reshape(y.shape) % 2 * 2 - 1
    return y * (1 + torch.finfo(torch.float32).eps / 2 * signs)


class Soak:
    def __init__(self, seed, folder, alone=False, blame=False):
        self.random, self.folder = random.Random(seed), Path(folder)
        self.alone, self.blame = alone, blame
        self.counts, self.wrong, self.last_source = {}, [], ""
        self.first_quarter, self.theirs = True, []  # (program, what torch.compile has made of it)

    # --- programs
    def source(self):
        """A program of a few ops, of which there are some thousands."""
        lines = ["def program(x):", "    y = x"]
        for _ in range(self.random.randrange(1, 6)):
            lines.append(f"    y = y.{self.random.choice(OPS)}() + {self.random.randrange(3)}")
        if self.random.random() < 0.3:
            lines.append("    y = y.softmax(-1)")
        if self.random.random() < 0.3:
            lines.append("    y = y.sum(0, keepdim=True) * x")
        if self.random.random() < 0.2:
            lines.append("    y = y if y.sum() > 0 else -y")
        return "\n".join([*lines, "    return y"])

    def program(self):
        """A program; its attribute `nudged` is the same with a rounding behind each line."""
        namespace, self.last_source = {"nudge": nudge}, self.source()
        exec(self.last_source, namespace)
        program = namespace["program"]
        exec(re.sub(r"(?m)^    y = .*", r"\g<0>\n    y = nudge(y)", self.last_source), namespace)
        program.nudged = namespace["program"]
        return program

    def backend(self):
        return self.random.choice(["eager", "aot_eager", "inductor"])

    def agrees(self, program, compiled, x):
        """Raises AssertionError.  Where eager's own result is some digits off what float64 gives
        (the sine of a million), or one rounding after each line is (a softmax over numbers of a
        billion), any other rounding is as good: that is counted, and not judged."""
        ours, eager, exact = compiled(x), program(x), program(x.double())
        nudged = program.nudged(x.double())
        reason = "float32 against float64"
        if any(too_far(found.double(), exact, TIMES_OF_32, reason) for found in (eager, nudged)):
            self.counts["not judged"] = self.counts.get("not judged", 0) + 1
        else:
            problem = too_far(ours, eager)
            assert not problem, f"{problem}\n{self.last_source}"

    # --- rounds
    def sizes(self):
        program = self.program()
        compiled = minidynamo.compile(program, backend=self.backend())
        for rows in self.random.sample(range(2, 9), 3):
            self.agrees(program, compiled, torch.randn(rows, 8))

    def training(self):
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        compiled, x = minidynamo.compile(model, backend=self.backend()), torch.randn(4, 8)
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        for _ in range(3):
            optimizer.zero_grad()
            compiled(x).square().mean().backward()
            ours = [p.grad.clone() for p in model.parameters()]
            optimizer.zero_grad()
            model(x).square().mean().backward()
            for one, parameter in zip(ours, model.parameters()):
                assert_near(one, parameter.grad)
            optimizer.step()

    def raising(self):
        def program(x):
            y = x.sin()
            raise ValueError(y.sum().item())

        with contextlib.suppress(ValueError):
            minidynamo.compile(program, backend=self.backend())(torch.randn(3))
            raise AssertionError("it did not raise")

    def threads(self):
        programs, failed = [self.program() for _ in range(3)], []

        def work(program):
            try:
                compiled = minidynamo.compile(program, backend="aot_eager")
                self.agrees(program, compiled, torch.randn(4, 8))
            except Exception:
                failed.append(traceback.format_exc())

        started = [threading.Thread(target=work, args=(program,)) for program in programs]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join()
        assert not failed, failed[0]

    def fork(self):
        program, x = self.program(), torch.randn(4, 8)
        child = os.fork()
        if not child:
            try:
                signal.alarm(60)
                torch.set_num_threads(1)
                self.agrees(program, minidynamo.compile(program, backend=self.backend()), x)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        status = os.waitpid(child, 0)[1]
        assert status == 0, f"the child ended with status {status}"

    def reset(self):
        minidynamo.reset()

    def evicted(self):
        for path in list(self.folder.glob("*.*"))[:10]:
            content = path.read_bytes() if path.is_file() else b""
            path.unlink(missing_ok=True)
            if self.random.random() < 0.5:  # another file: the library may be mapped
                path.write_bytes(content[:100])
        minidynamo.reset()
        self.sizes()

    def beside(self):
        if self.first_quarter or not self.theirs:
            torch._dynamo.reset()
            program = self.program()
            del self.theirs[:]
            self.theirs.append((program, torch.compile(program, backend="eager")))
            with contextlib.suppress(Exception):
                raising = torch.compile(lambda x: print(x) or x, fullgraph=True, backend="eager")
                raising(torch.ones(2))
        [(program, theirs)] = self.theirs
        self.agrees(program, theirs, torch.randn(4, 8))
        self.sizes()
        self.agrees(program, theirs, torch.randn(4, 8))

    # --- the whole
    def round(self):
        rounds = [self.sizes] * 6 + [self.training] * 2 + [self.raising, self.threads, self.fork]
        rounds += [self.reset, self.evicted] + ([] if self.alone else [self.beside])
        chosen = self.random.choice(rounds)
        self.counts[chosen.__name__] = self.counts.get(chosen.__name__, 0) + 1
        try:
            chosen()
        except Exception:
            self.wrong.append(f"{chosen.__name__}: {traceback.format_exc()[-1500:]}")
        self.wrong += [f"internal: {error}" for error in minidynamo.counters["errors"]]
        minidynamo.counters["errors"].clear()

    def run(self, seconds, most_rounds=None):
        """(rounds, bytes a round after the first quarter)."""
        begin, told, rounds, memory, before = time.monotonic(), 0.0, 0, [], None
        while time.monotonic() - begin < seconds and rounds != most_rounds:
            self.round()
            rounds += 1
            if rounds % 20 == 0:
                gc.collect()
                memory.append((rounds, resident()))
            now = time.monotonic() - begin
            if self.first_quarter and now >= seconds / 4:
                self.first_quarter = False
                before = Held() if self.blame else None
            if now - told > 60:
                told = now
                text = f"{now:5.0f} s, {rounds} rounds, {resident() >> 20} MiB"
                print(text, f"{len(self.wrong)} wrong", flush=True)
        if before:
            before.compare()
        return rounds, growth(memory[len(memory) // 4 :])


class Held:
    """What Python holds, with nothing compiled."""

    def __init__(self):
        minidynamo.reset()
        gc.collect()
        tracemalloc.start(8)
        tracemalloc.clear_traces()
        self.types = collections.Counter(type(value).__qualname__ for value in gc.get_objects())
        self.blocks, self.memory = sys.getallocatedblocks(), resident()

    def compare(self):
        """Print what there is more of since."""
        minidynamo.reset()
        gc.collect()
        types = collections.Counter(type(value).__qualname__ for value in gc.get_objects())
        lines = tracemalloc.take_snapshot().statistics("lineno")
        tracemalloc.stop()
        print(f"[soak] {(resident() - self.memory) >> 10} KiB", end=", ")
        print(f"{sys.getallocatedblocks() - self.blocks} blocks of Python more than then")
        for name, more in (types - self.types).most_common(12):
            print(f"  {more} {name}")
        for line in lines[:25]:
            print(f"  {line}")


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def growth(memory):
    """Bytes a round: the slope of the line through these points."""
    if len(memory) < 3:
        return 0.0
    x = torch.tensor(memory, dtype=torch.float64)
    x = x - x.mean(0)
    return float((x[:, 0] * x[:, 1]).sum() / (x[:, 0] ** 2).sum())


def is_too_much(grown, rounds):
    return grown > max(GROWTH, NOISE / rounds)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--alone", action="store_true", help="without torch.compile")
    parser.add_argument("--blame", action="store_true", help="say what Python holds more of")
    options = parser.parse_args()
    torch.set_num_threads(1)  # GNU OpenMP hangs in children of a process that has used threads
    with tempfile.TemporaryDirectory() as folder, miniinductor.config.patch(cache_dir=folder):
        soak = Soak(options.seed, folder, options.alone, options.blame)
        rounds, grown = soak.run(options.seconds)
    print(f"[soak] {rounds} rounds {soak.counts}")
    print(f"[soak] {grown / 1024:.1f} KiB a round, {len(soak.wrong)} wrong")
    for text in dict.fromkeys(soak.wrong):
        print(text)
    sys.exit(bool(soak.wrong) or is_too_much(grown, rounds))


if __name__ == "__main__":
    main()
