"""Every op that PyTorch tests itself with, compiled, against eager: `make ops`.

In:   the OpInfos of `torch.testing._internal.common_methods_invocations.op_db` (about 700 entries)
      with their sample inputs.
Out:  a table: ops that are right, that raise, that run eagerly, that give WRONG VALUES; the share
      lowered without any fallback kernel.

    # float32, bool, int64, bfloat16; 8 samples of each
    python tests/sweeps/ops.py
    # these ops, all samples
    python tests/sweeps/ops.py cumsum nn.functional.pad --samples 0
    # torch.compile, in the first of these dtypes that the op takes
    python tests/sweeps/ops.py --samples 2 --dtypes first --peer
    # ours on the same samples, and which ops only one of them has
    python tests/sweeps/ops.py --samples 2 --dtypes first --versus
    # which ops run without any eager kernel, ours and torch.compile's (nothing is built or run)
    python tests/sweeps/ops.py --native --samples 4 --dtypes first
    # Triton's kernels on a GPU
    python tests/sweeps/ops.py --samples 2 --dtypes first --device cuda

Samples of one op and dtype are compiled as one graph (one call of the C++ compiler), and one by one
where that fails.  The generator is seeded before each call, so random ops must draw what eager
draws.  Two worker processes; an op over its time limit, or one that kills its worker, is a failure
of that op alone.  Results are kept in a file as they come: a second run goes on where the first
ended.

`--native` asks another question, of both compilers in one way: is the op captured whole, in every
sample and dtype, and does its forward call no eager kernel (a library's, a fallback, a random
number generator's)?  Ours says so in its record after lowering; of torch.compile it is read from
the code that it generates, between `def call(` and the end of that function.

Tolerances are torch's: `assert_close`'s defaults for the dtype, or the OpInfo's own
`toleranceOverride` where that is wider.  A result outside them is right only if it is as near to
the float64 result as benchmarks/error_bound.py demands.
"""

import argparse
import collections
import copy
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import warnings

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, ROOT)
DTYPES = ("float32", "bool", "int64", "bfloat16")
CONTENT_UNDEFINED = {
    *"empty empty_like empty_permuted empty_strided new_empty new_empty_strided".split(),
    # on a GPU: the random state, where nothing is dropped
    "torch.ops.aten._efficient_attention_forward",
    "torch.ops.aten._flash_attention_forward",
}
PEER_LIMIT, LIMIT = 240, 120  # seconds per op and dtype
SEED = 42  # what many OpInfos of random ops set themselves (`wrapper_set_seed`)


# --- in the worker --------------------------------------------------------------------------------
def samples_of(op, dtype, most, device="cpu"):
    """[(args, kwargs, expected value)]: `most` samples spread over those that the OpInfo has and
    that eager accepts."""
    import torch

    torch.manual_seed(SEED)
    every = list(op.sample_inputs(device, dtype, requires_grad=False))
    if most and len(every) > most:
        every = [
            every[round(k * (len(every) - 1) / (most - 1))] if most > 1 else every[0]
            for k in range(most)
        ]
    result = []
    for sample in every:
        args, kwargs = (sample.input, *sample.args), sample.kwargs
        try:
            torch.manual_seed(SEED)
            with torch.no_grad():
                result.append((args, kwargs, op.op(*copy.deepcopy(args), **copy.deepcopy(kwargs))))
        except Exception:  # eager refuses it: nothing to compare with
            pass
    return result


def graph_of(op, samples):
    """(GraphModule that calls `op` once per sample, its tensor inputs)."""
    import torch
    import torch.utils._pytree as pytree
    from torch import fx

    target = op.op
    if not getattr(target, "__name__", "<").isidentifier() or target.__name__ != getattr(
        target, "__qualname__", None
    ):

        def target(*args, **kwargs):
            return op.op(*args, **kwargs)

        target.__name__ = target.__qualname__ = "op_under_test"
    graph, tensors, nodes = fx.Graph(), [], {}

    def node_of(tensor):
        if id(tensor) not in nodes:
            nodes[id(tensor)] = graph.placeholder(f"x{len(tensors)}")
            tensors.append(tensor)
        return nodes[id(tensor)]

    calls = []
    for args, kwargs, _ in samples:
        args, kwargs = pytree.tree_map_only(torch.Tensor, node_of, (args, kwargs))
        calls.append((args, kwargs))
    graph.output(tuple(graph.call_function(target, args, kwargs) for args, kwargs in calls))
    return fx.GraphModule(torch.nn.Module(), graph), tensors


def tolerance(op, dtype):
    """Keyword arguments of assert_close, or {} for its defaults."""
    from torch.testing._internal.common_device_type import toleranceOverride

    widest = None
    for info in op.decorators:
        for decorator in getattr(info, "decorators", ()):
            own = isinstance(decorator, toleranceOverride) and decorator.d.get(dtype)
            if own and (widest is None or own.atol + own.rtol > widest.atol + widest.rtol):
                widest = own
    return {} if widest is None else {"atol": widest.atol, "rtol": widest.rtol}


def error_sizes(op, sample, *results):
    """Root mean square distance of each result to what eager gives in float64; None where the op
    does not take float64."""
    import torch
    import torch.utils._pytree as pytree

    args, kwargs = pytree.tree_map_only(
        torch.Tensor,
        lambda t: t.double() if t.is_floating_point() else t,
        copy.deepcopy(sample[:2]),
    )
    try:
        torch.manual_seed(SEED)
        exact = pytree.tree_leaves(op.op(*args, **kwargs))
        return [
            max(
                (
                    float((a.double() - b).square().nan_to_num(0).mean().sqrt())
                    for a, b in zip(pytree.tree_leaves(r), exact)
                    if a.numel()
                ),
                default=0.0,
            )
            for r in results
        ]
    except Exception:
        return None


def difference(op, got, sample, dtype):
    """What is wrong with `got`, as a sentence, or None."""
    import torch
    import torch.utils._pytree as pytree

    from benchmarks.error_bound import allowed_error

    problem = eager_difference(op, got, sample[2], dtype)
    if problem and "not close" in problem:
        zeros = pytree.tree_map_only(torch.Tensor, torch.zeros_like, sample[2])
        sizes = error_sizes(op, sample, got, sample[2], zeros)
        floats = [t.dtype for t in pytree.tree_leaves(sample[2]) if t.is_floating_point()]
        if sizes and floats:  # the operator may make floats of integers
            if sizes[0] <= allowed_error(sizes[1] / (sizes[2] or 1.0), floats[0]) * sizes[2]:
                return None
        problem += (
            f" (distance to float64: ours {sizes[0]:.3g}, eager's {sizes[1]:.3g})" if sizes else ""
        )
    return problem


def eager_difference(op, got, want, dtype):
    import torch
    import torch.utils._pytree as pytree

    ours, eager = pytree.tree_leaves(got), pytree.tree_leaves(want)
    if len(ours) != len(eager):
        return f"{len(ours)} results instead of {len(eager)}"
    for a, b in zip(ours, eager):
        if not isinstance(b, torch.Tensor):
            if a != b and not (a != a and b != b):
                return f"{a!r} instead of {b!r}"
            continue
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"{a.dtype}{list(a.shape)} instead of {b.dtype}{list(b.shape)}"
        if op.name in CONTENT_UNDEFINED:
            continue
        try:
            torch.testing.assert_close(a, b, equal_nan=True, **tolerance(op, dtype))
        except AssertionError:
            try:  # the default may be the wider one
                torch.testing.assert_close(a, b, equal_nan=True)
            except AssertionError as error:
                return " ".join(str(error).split())[:120]
    return None


def compile_ours(op, samples):
    """(callable, record)"""
    import miniinductor

    gm, tensors = graph_of(op, samples)
    compiled = miniinductor.compile_fx(gm, copy.deepcopy(tensors))
    return (lambda: compiled(*copy.deepcopy(tensors))), compiled.record


def compile_peer(op, samples):
    import torch

    torch._dynamo.reset()
    calls = [(args, kwargs) for args, kwargs, _ in samples]

    @torch.compile(dynamic=False)
    def function(calls):
        return [op.op(*args, **kwargs) for args, kwargs in calls]

    return (lambda: function(copy.deepcopy(calls))), None


def check(op, dtype, samples, peer, device, outcome):
    """Compile the samples as one graph and compare; one by one if that fails or is not compiled."""
    import torch

    try:
        with torch.no_grad():
            run, record = (compile_peer if peer else compile_ours)(op, samples)
            eager = (
                next((n for n in record.notes if n.startswith("runs eagerly")), None)
                if record
                else None
            )
            if len(samples) > 1 and eager:
                raise RuntimeError(eager)
            torch.manual_seed(SEED)
            if len(samples) > 1 and op_is_random(op, device):
                raise RuntimeError("each sample needs its own seed")
            got = run()
        problems = [difference(op, g, sample, dtype) for g, sample in zip(got, samples)]
        if len(samples) > 1 and any(problems):
            raise RuntimeError(problems)
    except Exception as error:
        if len(samples) > 1:
            for sample in samples:
                check(op, dtype, [sample], peer, device, outcome)
            return
        outcome["raised"].append(f"{type(error).__name__}: {str(error).splitlines()[0][:120]}")
        return
    outcome["wrong"] += [p for p in problems if p]
    if eager:
        outcome["eager"].append(eager.removeprefix("runs eagerly: ").splitlines()[0][:120])
    outcome["right"] += 0 if eager else sum(p is None for p in problems)
    if record:
        outcome["fallback"] += [f.op for f in record.fallbacks if f.kind == "fallback"]
        outcome["extern"] += [f.op for f in record.fallbacks if f.kind == "extern"]


class Seen(Exception):
    """A compiler has said what it calls: it need not go on."""


def eager_calls_of_ours(op, samples):
    """The eager kernels of these calls as one graph; raises where that runs eagerly as a whole."""
    import miniinductor.compile

    records = []

    def stop(graph, record):
        records.append(record)
        raise Seen

    original, miniinductor.compile.build_program = miniinductor.compile.build_program, stop
    try:
        gm, tensors = graph_of(op, samples)
        records.append(miniinductor.compile_fx(gm, copy.deepcopy(tensors)).record)
    except Seen:
        pass
    finally:
        miniinductor.compile.build_program = original
    for note in records[0].notes:
        if note.startswith("runs eagerly"):
            raise RuntimeError(note)
    return sorted({f.op for f in records[0].fallbacks})


EAGER_CALL = re.compile(r"\b(?:extern_kernels\.\w+|(?:torch\.ops\.|aten\.|mkldnn\.)[\w.]+)\(")


def eager_calls_of_peer(op, samples):
    """The same of torch.compile, which raises where it would break the graph."""
    import torch
    from torch._inductor.graph import GraphLowering

    torch._dynamo.reset()
    torch._inductor.config.fx_graph_cache = False
    torch._functorch.config.enable_autograd_cache = False
    calls, found = [(args, kwargs) for args, kwargs, _ in samples], []

    def stop(code):
        body = re.split(r"\n(?=\S)", code.partition("def call(")[2])[0]
        lines = [line.partition("#")[0] for line in body.splitlines()]
        found.extend(EAGER_CALL.findall("\n".join(lines)))
        raise Seen

    @torch.compile(dynamic=False, fullgraph=True)
    def function(calls):
        return [op.op(*args, **kwargs) for args, kwargs in calls]

    GraphLowering.save_output_code = staticmethod(stop)
    try:
        function(copy.deepcopy(calls))
    except Exception as error:
        if "Seen" not in f"{type(error).__name__} {error}":
            raise
    finally:
        GraphLowering.save_output_code = None
    return sorted({call.rstrip("(").removeprefix("torch.ops.") for call in found})


def check_native(op, samples, peer, outcome):
    """Fills `extern` and `raised` of the outcome: without both the op is native."""
    import torch

    eager_calls = eager_calls_of_peer if peer else eager_calls_of_ours
    try:
        with torch.no_grad():
            outcome["extern"] += eager_calls(op, samples)
    except Exception as error:
        if len(samples) > 1:
            for sample in samples:
                check_native(op, [sample], peer, outcome)
            return
        text = (str(error).splitlines() or [""])[0]
        outcome["raised"].append(f"{type(error).__name__}: {text[:120]}")


def op_is_random(op, device):
    import torch

    state = torch.cuda.get_rng_state if device == "cuda" else torch.get_rng_state
    sample = next(
        iter(op.sample_inputs(device, sorted(op.supported_dtypes(device), key=str)[0])), None
    )
    before = state()
    try:
        op.op(*copy.deepcopy((sample.input, *sample.args)), **copy.deepcopy(sample.kwargs))
    except Exception:
        return False
    return not torch.equal(before, state())


def nothing_found():
    """The outcome of an op and dtype before its first sample."""
    lists = ("eager", "raised", "wrong", "fallback", "extern")
    return {"samples": 0, "right": 0} | {key: [] for key in lists}


def work(peer, most, device, native):
    """Lines "number dtype" in, JSON lines out."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what ops print goes to stderr
    warnings.simplefilter("ignore")
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    torch.set_num_threads(1)
    for line in sys.stdin:
        number, dtype = line.split()
        op, dtype = op_db[int(number)], getattr(torch, dtype)
        outcome = nothing_found()
        try:
            samples = samples_of(op, dtype, most, device)
            outcome["samples"] = len(samples)
            if samples and native:
                check_native(op, samples, peer, outcome)
            elif samples:
                check(op, dtype, samples, peer, device, outcome)
        except Exception as error:
            outcome["raised"].append(f"sweep: {type(error).__name__}: {error}"[:200])
        for key in ("fallback", "extern"):
            outcome[key] = sorted(set(outcome[key]))
        print(json.dumps(outcome), file=answers, flush=True)


# --- in the parent --------------------------------------------------------------------------------
class Worker:
    """A process that checks ops; started anew when it dies or hangs."""

    def __init__(self, options):
        self.options, self.process = options, None

    def ask(self, number, dtype):
        if self.process is None:
            command = [sys.executable, os.path.abspath(__file__), "--worker"]
            command += ["--samples", str(self.options.samples), "--device", self.options.device]
            environment = {
                **os.environ,
                "TORCHINDUCTOR_COMPILE_THREADS": "1",
                "OMP_NUM_THREADS": "1",
            }
            self.process = subprocess.Popen(
                command + ["--peer"] * self.options.peer + ["--native"] * self.options.native,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env=environment,
            )
        timer = threading.Timer(PEER_LIMIT if self.options.peer else LIMIT, self.process.kill)
        timer.start()
        try:
            self.process.stdin.write(f"{number} {dtype}\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        finally:
            late = not timer.is_alive()
            timer.cancel()
        if answer:
            if "CUDA error" in answer:  # this process will never compute again
                self.process.kill()
                self.process = None
            return json.loads(answer)
        code = self.process.wait()
        self.process = None
        why = "over the time limit" if late else f"the process died (exit status {code})"
        return nothing_found() | {"samples": 1, "raised": [why]}


def results_file(options):
    """In the temporary folder, one per version of the sources (of the peer: one)."""
    command = "git rev-parse HEAD; git diff HEAD -- miniinductor"
    state = (
        "peer"
        if options.peer
        else subprocess.run(command, shell=True, cwd=ROOT, capture_output=True).stdout
    )
    what = (state, options.samples, options.device, *["native"] * options.native)
    key = hashlib.sha256(repr(what).encode()).hexdigest()[:12]
    return os.path.join(tempfile.gettempdir(), f"miniinductor-ops-{key}.jsonl")


def sweep(options):
    """{(op, dtype): outcome} of everything asked for, from the file where it is already there."""
    from torch.testing._internal.common_methods_invocations import op_db

    names = [
        f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name for op in op_db
    ]
    jobs = []
    for number, op in enumerate(op_db):
        takes = [str(d).removeprefix("torch.") for d in op.supported_dtypes(options.device)]
        dtypes = [
            d
            for d in (DTYPES if options.dtypes == "first" else options.dtypes.split(","))
            if d in takes
        ]
        if options.device == "cuda" and op.name.startswith(
            "jiterator"
        ):  # no op of the dispatcher: a graph break
            continue
        if not options.ops or op.name in options.ops:
            jobs += [
                (number, dtype) for dtype in (dtypes[:1] if options.dtypes == "first" else dtypes)
            ]
    done, results = {}, results_file(options)
    if os.path.exists(results) and not options.ops:
        with open(results) as file:
            for line in file:
                row = json.loads(line)
                done[row["op"], row["dtype"]] = row
    waiting = collections.deque(job for job in jobs if (names[job[0]], job[1]) not in done)
    lock, start, count = threading.Lock(), time.time(), len(waiting)

    def loop():
        worker = Worker(options)
        while True:
            with lock:
                if not waiting or options.seconds and time.time() - start > options.seconds:
                    break
                number, dtype = waiting.popleft()
            row = {"op": names[number], "dtype": dtype, **worker.ask(number, dtype)}
            with lock:
                done[row["op"], dtype] = row
                if not options.ops:
                    with open(results, "a") as file:
                        file.write(json.dumps(row) + "\n")
                if (count - len(waiting)) % 200 == 0:
                    print(f"{count - len(waiting)}/{count} {time.time() - start:.0f} s", flush=True)
        if worker.process:
            worker.process.stdin.close()
            worker.process.wait()

    threads = [threading.Thread(target=loop) for _ in range(options.processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wanted = {(names[number], dtype) for number, dtype in jobs}
    return {key: row for key, row in done.items() if key in wanted and row["samples"]}


def grouped(rows):
    by_op = collections.defaultdict(list)
    for (op, _), row in rows.items():
        by_op[op].append(row)
    return by_op


def free_of(rows, *keys):
    """The ops of whose rows none has any of these."""
    by_op = grouped(rows)
    return {op for op in by_op if not any(row[key] for row in by_op[op] for key in keys)}


def report(rows, options):
    by_op = grouped(rows)

    def having(key):
        return sorted(op for op, group in by_op.items() if any(row[key] for row in group))

    wrong, raised, eager, fallback = (
        having(key) for key in ("wrong", "raised", "eager", "fallback")
    )
    for title, key, ops in (
        ("WRONG VALUES", "wrong", wrong),
        ("raise", "raised", raised),
        ("whole graph runs eagerly", "eager", eager),
    ):
        print(f"\n{title}: {len(ops)} ops")
        for op in ops:
            reasons = collections.defaultdict(list)
            for row in by_op[op]:
                for what in set(row[key]):
                    reasons[what].append(row["dtype"])
            for what, dtypes in list(reasons.items())[:4]:
                print(f"  {op} ({', '.join(dtypes)}): {what}")
    right = free_of(rows, "wrong", "raised")
    compiled = right - set(eager)
    native = compiled - set(fallback)
    total, samples = len(by_op), sum(row["samples"] for row in rows.values())
    share = lambda ops: f"{len(ops)} of {total} ops ({len(ops) / max(1, total):.1%})"  # noqa: E731
    if not options.peer:
        kernels = collections.Counter(
            kernel
            for group in by_op.values()
            for kernel in {k for row in group for k in row["fallback"]}
        )
        counts = ", ".join(f"{kernel} {n}" for kernel, n in kernels.most_common())
        print(f"\neager kernels for want of a rule, by number of ops: {counts}")
        from miniinductor.lowering import LOWERINGS
        from miniinductor.lowering.decompositions import OURS, table

        print(
            f"\nATen overloads with a lowering: {len(LOWERINGS)}; "
            f"decompositions: {len(OURS)} ours, {len(table()) - len(OURS)} of torch's table"
        )
    print(f"\n{samples} samples of {len(rows)} (op, dtype) pairs")
    print(f"right:                          {share(right)}")
    if not options.peer:
        print(f"  of these compiled whole:      {share(compiled)}")
        print(f"  without a fallback kernel:    {share(native)}")
        without = [op for op in native if not any(row["extern"] for row in by_op[op])]
        print(f"  nor a library kernel:         {share(without)}")
    print(f"raise: {len(raised)}, WRONG: {len(wrong)}")
    if options.versus:
        options.peer, options.seconds = True, 1e-9
        theirs = free_of(sweep(options), "wrong", "raised")
        print(f"torch.compile is right on:      {share(theirs)}")
        print(f"  only ours: {', '.join(sorted(right - theirs))}")
        print(f"  only torch.compile: {', '.join(sorted(theirs - right))}")
    return 1 if wrong else 0


def report_native(options):
    """Both compilers' native ops, and the eager kernels of ours where torch.compile needs none, by
    the number of ops that want nothing else."""
    options.peer = False
    ours = sweep(options)
    options.peer = True
    theirs = sweep(options)
    both = grouped(ours).keys() & grouped(theirs).keys()
    native, others = (free_of(rows, "extern", "raised") & both for rows in (ours, theirs))
    print(f"native of {len(both)} ops: ours {len(native)}, torch.compile {len(others)}")
    wins = collections.defaultdict(list)
    for op in sorted(others - native):
        group = grouped(ours)[op]
        kernels = {k for row in group for k in row["extern"]}
        raised = {r for row in group for r in row["raised"]}
        wins["; ".join(sorted(kernels | raised))].append(op)
    print("native in torch.compile, not in ours (eager kernels of ours: ops):")
    for kernels, ops in sorted(wins.items(), key=lambda item: -len(item[1])):
        print(f"  {len(ops)} {kernels}: {', '.join(ops)}")
    print(f"native only in ours: {', '.join(sorted(native - others))}")
    return 0


def main():
    parser = argparse.ArgumentParser(description="every OpInfo, compiled, against eager")
    parser.add_argument("ops", nargs="*", help="names of OpInfos; default: all")
    parser.add_argument("--samples", type=int, default=8, help="samples per op and dtype; 0: all")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--peer", action="store_true", help="torch.compile instead of ours")
    parser.add_argument(
        "--versus", action="store_true", help="and compare with what an earlier --peer run found"
    )
    parser.add_argument(
        "--native", action="store_true", help="count the ops without any eager kernel, of both"
    )
    parser.add_argument("--seconds", type=float, help="stop after this time; the next run goes on")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return work(options.peer, options.samples, options.device, options.native)
    if options.native:
        return report_native(options)
    return report(sweep(options), options)


if __name__ == "__main__":
    sys.exit(main())
