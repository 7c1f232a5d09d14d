"""--suite compile-time: seconds of the first call, CPU (with the compilers it starts) and wall, a
fresh process for every figure.

Cold: empty caches.  Warm: the same folder again, in another process.  The first call includes
whatever the compiler imports then; importing torch, the package and building the model come before
it and are the column "before".  The last column is a second small graph in the same process,
nothing of it on disk.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from .common import Options, Row, suite, wanted

CHILD = """
import json, os, sys
import torch, minidynamo
from benchmarks.models import bert, gpt2
from benchmarks.runner import cpu_seconds, peer_compile, timed_first_call
who, what, threads = sys.argv[1:]
torch.set_num_threads(int(threads))
compiler = {"ours": minidynamo.compile, "peer": peer_compile}[who]
def small(x, y): return torch.relu(x * 2 + y).sum(1)
def another(x, y): return torch.softmax(x * 3 - y, 1) + y
x = torch.randn(64, 64)
of_tensors = lambda: (small, dict(x=x, y=x))
function, inputs = {"small": of_tensors, "BERT": bert, "GPT-2": gpt2}[what]()
with torch.no_grad():
    function(**inputs)
    before = cpu_seconds()
    _, first = timed_first_call(lambda: compiler(function)(**inputs))
    _, second = timed_first_call(lambda: compiler(another)(x, x))
print(json.dumps(dict(before=before, wall=first.wall, cpu=first.cpu, again=second.cpu)))
"""


def first_call(who: str, what: str, folder: str, threads: int) -> Row:
    """The figures of one fresh process whose caches lie in `folder`."""
    names = {"MINIINDUCTOR_CACHE": "ours", "TORCHINDUCTOR_CACHE_DIR": "peer"}
    caches = {variable: os.path.join(folder, name) for variable, name in names.items()}
    command = [sys.executable, "-c", CHILD, who, what, str(threads)]
    done = subprocess.run(command, env=os.environ | caches, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{who} failed on {what}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


@suite("compile-time")
def compile_time(options: Options, result: Row) -> Iterator[Row]:
    """Seconds of the first call with empty and with filled caches, each in a fresh process."""
    head = ["before CPU s", "first call CPU s", "wall s", "a second graph CPU s"]
    print(f"{'':20}" + "".join(f"{text:>22}" for text in head))
    compilers = ("ours",) if options.no_peer else ("ours", "peer")
    for what in ("small", "BERT", "GPT-2"):
        if not wanted(what, options):
            continue
        seconds = {}
        for who in compilers:
            with tempfile.TemporaryDirectory(prefix="minidynamo-bench-") as folder:
                for state in ("cold", "warm"):
                    row = first_call(who, what, folder, options.threads or 1)
                    seconds[who, state] = row["cpu"]
                    figures = (row[name] for name in ("before", "cpu", "wall", "again"))
                    text = "".join(f"{figure:22.2f}" for figure in figures)
                    print(f"{what:8}{who:6}{state:6}{text}", flush=True)
                    yield dict(row, name=what, compiler=who, caches=state)
        if not options.no_peer:
            cold, warm = (seconds["ours", s] / seconds["peer", s] for s in ("cold", "warm"))
            print(f"{what:8}ours / peer: cold {cold:.3f}, warm {warm:.3f}")
