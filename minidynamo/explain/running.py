"""Running a function in order to explain it, so that nothing else that is compiled notices.

In:   a function, a module, or what `compile` has made of one.  Out: an `Explainer`.

    >>> e = explain(f)(x)                      # one call, compiled from scratch
    >>> e = explain(f).calls([(x,), (x,)])     # a series of calls: what each of them compiled
    >>> explain(minidynamo.compile(f)).entries       # what it holds now; nothing runs

An explained function gets a compiler of its own, whose entries lie beside the others' and are
passed over by them.  What all share is put back after each run: code that somebody has given up is
asked anew meanwhile, and stays given up for them.
"""

import contextlib
import time
import types
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import miniinductor
from miniinductor.compile import CLOCK

from .. import api, records
from ..convert import convert_frame
from ..convert.entries import CODES, CacheEntry
from ..frame import frame_hook
from ..rebuild import resume
from .explanation import Explanation, FrameExplanation
from .stepping import watching
from .timeline import Work, clock, watched_gpu


@dataclass
class Call:
    """One call of a series.  arguments: as `to_json` describes them; compiled: the records of the
    frames that it had to compile or give up."""

    arguments: list[dict[str, Any]]
    result: Any
    compiled: "list[records.FrameRecord]"
    counters: dict[str, Counter[str]]  # what it added to `minidynamo.counters`
    seconds: float


class Explainer:
    """What `explain(fn)` gives: to be called like `fn`, or asked for what `fn` holds now.

    options: those of `compile`; of a compiled function, its own where they are not given.
    looks: what is looked at beside the records."""

    def __init__(self, fn: Callable, options: dict[str, Any], looks: "Looks | None" = None) -> None:
        self.fn, self.compiler, self.looks = fn, compiler_of(fn), looks or Looks()
        self.options = options_of(self.compiler) | options if self.compiler else options

    def __call__(self, *args: Any, **kwargs: Any) -> Explanation:
        """Run the function once, compiled from scratch."""
        apart = Apart(target_of(self.fn), self.options, self.looks)
        return explanation_of(self.fn, apart, [called(self.fn, apart, args, kwargs)])

    def calls(self, series: Iterable[Sequence[Any]]) -> Explanation:
        """Run the function, compiled from scratch, with each of these tuples of arguments; `calls`
        of the explanation says what each call compiled.  Raises TypeError for what is no tuple."""
        apart, made = Apart(target_of(self.fn), self.options, self.looks), []
        for args in series:
            if not isinstance(args, (tuple, list)):
                raise TypeError(
                    f"calls([(x,), (y,)]): a tuple of arguments, not {type(args).__name__}"
                )
            made.append(called(self.fn, apart, tuple(args), {}))
        return explanation_of(self.fn, apart, made)

    @property
    def entries(self) -> list[FrameExplanation]:
        """The compiled versions that are held now: of the function's own code, of what follows its
        graph breaks, and of functions in which it breaks.  Nothing runs."""
        return [FrameExplanation(entry.record) for entry in held_entries(self.fn, self.compiler)]

    def __repr__(self) -> str:
        return f"<explain {self.fn!r}: call it, or see .entries and .calls([(x,), ...])>"


def explain(
    fn: Callable, *, measure: bool = False, assembly: bool = False, **options: Any
) -> Explainer:
    """explain(fn)(*args, **kwargs): run fn compiled from scratch and return an Explanation.
    options: those of compile.  measure: how long each kernel takes, on copies of its arguments, and
    what share of this machine's memory bandwidth it reaches.  assembly: with the innermost loops of
    each kernel as machine code.

    explain(fn).calls([(x,), (y,)]) explains a series of calls; explain(compiled).entries shows what
    a compiled function holds now, without running it."""
    return Explainer(fn, options, Looks(measure, assembly))


@dataclass(frozen=True)
class Looks:
    """What is looked at only where it is asked for: how long kernels take, their assembly."""

    measure: bool = False
    assembly: bool = False


# --- one run --------------------------------------------------------------------------------------
class Apart:
    """A function, compiled by a compiler of its own; called like the function.

    held: what lies in the caches of code that others have given up, by the code's id; it is there
    while the function runs."""

    def __init__(self, target: Any, options: dict[str, Any], looks: Looks = Looks()) -> None:
        self.looks = looks
        api.check_options(**options)
        compiler = convert_frame.FrameCompiler(**options)
        self.compiled = api.compiled_by(compiler, target)
        self.held: dict[int, list[CacheEntry]] = {}
        self.works: list[Work] = []
        weakref.finalize(self, forget, compiler, self.held).atexit = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with self.running(), miniinductor.config.patch(keep_steps=True), watching():
            measures = self.looks.measure
            with CLOCK.set(clock(measures)), watched_gpu(self.works, measures):
                return self.compiled(*args, **kwargs)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Code that has been given up (its cache is None) has this function's entries meanwhile;
        what is given up meanwhile is not given up for others."""
        before = {id(code): (code, frame_hook.get_cache(code)) for code in list(CODES.values())}
        for code, cache in before.values():
            if cache is None:
                frame_hook.set_cache(code, list(filter(lives, self.held.get(id(code), []))))
        try:
            yield
        finally:
            for code in list(CODES.values()):
                _, cache = before.get(id(code), (code, []))
                now = frame_hook.get_cache(code)
                if cache is None:
                    self.held[id(code)] = now or []
                if now is None or cache is None:
                    frame_hook.set_cache(code, cache if cache is not False else [])


def lives(entry: CacheEntry) -> bool:
    """Are the modules alive for which it was made?"""
    return all(reference() is not None for reference in entry.watching)


def forget(compiler: Any, held: dict[int, list[CacheEntry]]) -> None:
    """Nobody can ask for the explanation any more: its entries and records go."""
    caches = [frame_hook.get_cache(code) for code in list(CODES.values())]
    for entries in [*held.values(), *(cache for cache in caches if isinstance(cache, list))]:
        for entry in [e for e in entries if type(e) is CacheEntry and e.compiler is compiler]:
            entries.remove(entry)
            records.forget(entry.record)


def called(fn: Callable, apart: Apart, args: tuple, kwargs: dict[str, Any]) -> Call:
    from .data import describe_arguments

    arguments = describe_arguments(fn, args, kwargs)
    earlier, counted = set(records.frames), counters_now()
    start = time.perf_counter()
    result = apart(*args, **kwargs)
    seconds = time.perf_counter() - start
    made = [record for record in records.frames if record not in earlier]
    counters = {group: now - counted.get(group, Counter()) for group, now in counters_now().items()}
    return Call(arguments, result, made, counters, seconds)


def counters_now() -> dict[str, Counter[str]]:
    return {group: Counter(counter) for group, counter in records.counters.items()}


def explanation_of(fn: Callable, apart: Apart, calls: list[Call]) -> Explanation:
    made = [record for call in calls for record in call.compiled]
    shown = [r for n, r in enumerate(made) if is_shown(r) or n == 0]
    name = getattr(fn, "__qualname__", type(fn).__name__)
    counters: dict[str, Counter[str]] = {}
    for call in calls:
        for group, counter in call.counters.items():
            counters[group] = counters.get(group, Counter()) + counter
    result = calls[-1].result if calls else None
    told = {group: dict(counter) for group, counter in counters.items() if counter}
    explanation = Explanation(name, result, shown, told, apart)
    explanation.made_calls = calls
    explanation.arguments = calls[-1].arguments if calls else []
    return explanation


def is_shown(record: Any) -> bool:
    """Is there something to see of this frame?  One without tensors runs as plain Python."""
    return record.graph is not None or bool(record.graph_breaks or record.error)


# --- what is compiled already ---------------------------------------------------------------------
def compiler_of(fn: Any) -> Any:
    """The compiler of a compiled function or module, or None."""
    if isinstance(fn, api.CompiledModule):
        return fn._compiler
    callback = fn.__callback__ if isinstance(fn, frame_hook.Switched) else None
    return callback if isinstance(callback, convert_frame.FrameCompiler) else None


def target_of(fn: Any) -> Any:
    """The function or module that `compile` was given."""
    if isinstance(fn, frame_hook.Switched):
        return fn.__wrapped__
    return fn._orig_mod if isinstance(fn, api.CompiledModule) else fn


def options_of(compiler: Any) -> dict[str, Any]:
    backend = compiler.backend_name if compiler.registered else compiler.backend
    names = ("fullgraph", "dynamic", "mode")
    return {"backend": backend} | {name: getattr(compiler, name) for name in names}


def code_of(fn: Any) -> types.CodeType | None:
    """The code object that runs when `fn` is called, if it is Python's."""
    fn = target_of(fn)
    fn = getattr(fn, "forward", fn)
    if not hasattr(fn, "__code__") and not isinstance(fn, types.MethodType):
        fn = getattr(type(fn), "__call__", None)
    return getattr(fn, "__code__", None)


def held_entries(fn: Any, compiler: Any) -> list[CacheEntry]:
    """The entries of a function's code, and of all code that its entries lead to."""
    owner = id(target_of(fn)) if hasattr(target_of(fn), "forward") else None
    found: list[CacheEntry] = []
    related, waiting = set(), [code_of(fn)]
    while waiting:
        code = waiting.pop(0)
        if code is None or id(code) in related:
            continue
        related.add(id(code))
        entries = [e for e in frame_hook.get_cache(code) or () if type(e) is CacheEntry]
        entries = [e for e in entries if compiler is None or e.compiler is compiler]
        if code is code_of(fn) and owner is not None:
            entries = [e for e in entries if e.owner == owner]
        found += sorted(entries, key=lambda entry: entry.record.number)
        waiting += [other for other in list(CODES.values()) if follows(other, code, entries)]
    return found


def follows(other: types.CodeType, code: types.CodeType, entries: Sequence[CacheEntry]) -> bool:
    """Does `other` go on behind a graph break in `code`, or does `code` break in a call of it?"""
    reference, _ = resume.origins.get(id(other), (lambda: None, []))
    continued = reference()  # whose rest `other` is
    if continued is not None:
        return continued is code
    places = {
        (file, function)
        for entry in entries
        for found in entry.record.graph_breaks
        for file, _, function in found.stack[1:]
    }
    return (other.co_filename, other.co_name) in places


def compilations(fn: Callable, calls: Iterable[tuple], **options: Any) -> list[int]:
    """How many graphs were compiled after each of `calls` (tuples of arguments), from scratch: [1,
    2, 2, ...].  options: those of compile."""
    apart, graphs, counts = Apart(fn, options), 0, []
    for args in calls:
        graphs += called(fn, apart, args, {}).counters.get("graphs", Counter()).total()
        counts.append(graphs)
    return counts
