"""CPython's own tests with the frame hook on: exactly the same outcome as without it.

    python tests/transparency.py [test_generators test_with.NestedWith ...]

Each file of the interpreter's `test` package runs in a process of its own, plain and hooked:
backend "eager", every frame captured, also the standard library's and those without a tensor, whose
replacement code then runs.  The outcome of every single test is compared.
"""

import faulthandler
import json
import subprocess
import sys
import unittest

FILES = """test_generators test_exceptions test_with test_scope test_call test_list test_dict
test_set test_contextlib test_itertools test_functools test_super test_dataclasses test_patma
test_defaultdict test_userdict test_slice test_raise test_decorators test_listcomps test_unpack
test_range test_property""".split()
LIMIT = 900  # seconds for one file
# what the hook changes by design: {why: tests}
EXCEPT = {
    test: why
    for why, tests in {
        "walks f_back and compares frames' names: behind a graph break the caller is "
        "`<resume of ...>`": [
            f"test.test_generators.GeneratorStackTraceTest.test_{kind}_with_yield_from"
            for kind in ("send", "throw")
        ],
        "reads the name of its own frame in a traceback: `<resume of ...>` behind a graph break": [
            "test.test_contextlib.ContextManagerTestCase.test_contextmanager_traceback",
            "test.test_contextlib.TestExitStack.test_exit_exception_traceback",
        ],
        "wants a string made at run time not to be interned: the traced part's results are "
        "constants of code": ["test.test_dict.DictTest.test_str_nonstr"],
        "measures the memory of a dict (key sharing)": [
            "test.test_dict.DictTest.test_splittable_popitem"
        ],
        "wants a value that is overwritten to be finalized there and then: writes are replayed at "
        "the end of the traced part": [
            "test.test_dict.DictTest.test_oob_indexing_dictiter_iternextitem"
        ],
        "wants a function to die of which a cache entry, made for its caller, keeps the identity": [
            f"test.test_functools.TestLRU{kind}.test_lru_cache_weakrefable" for kind in ("C", "Py")
        ],
        "wants a class to die of which a cache entry keeps the identity": [
            f"test.test_ordered_dict.{kind}Tests.test_reference_loop"
            for kind in (
                "CPythonOrderedDictSubclass",
                "CPythonOrderedDict",
                "PurePythonOrderedDictSubclass",
                "PurePythonOrderedDict",
            )
        ],
        "compares its own frame with that of a traceback: behind a graph break it is a resume "
        "function's": ["test.test_raise.TestTracebackType.test_attrs"],
        "asks for its caller's module (sys._getframe(1)): behind a graph break the caller is the "
        "function itself": ["test.test_collections.TestNamedTuple.test_factory"],
        "C's partial() flattens only a partial that has no __dict__ yet, and asking an object for "
        "its __dict__ makes one": ["test.test_functools.TestPartialC.test_nested_optimization"],
        "reads where a frame in the traceback stands (f_lineno; tb_lineno is right): behind a "
        "graph break that is the frame of a resume function": [
            f"test.test_exceptions.PEP626Tests.test_lineno_{kind}"
            for kind in ("after_other_except", "in_try")
        ],
        "counts the lines that sys.settrace sees: replacement code has none": [
            f"test.test_patma.TestTracing.test_{kind}"
            for kind in (
                "default_capture default_wildcard no_default only_default_capture "
                "only_default_wildcard unreachable_code"
            ).split()
        ],
    }.items()
    for test in tests
}


class Result(unittest.TestResult):
    """Writes one line for each test, as it ends."""

    def note(self, test, text):
        say({test.id(): text})

    def startTest(self, test):
        say({test.id(): "did not end"})
        super().startTest(test)

    def addSuccess(self, test):
        self.note(test, "ok")

    def addFailure(self, test, error):
        self.note(test, "failed: " + self._exc_info_to_string(error, test)[-1500:])

    addError = addFailure

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self.addFailure(subtest, error)

    def addSkip(self, test, reason):
        self.note(test, "skipped: " + reason)

    def addExpectedFailure(self, test, error):
        self.note(test, "expected failure")

    def addUnexpectedSuccess(self, test):
        self.note(test, "unexpected success")


def say(found):
    print("\n@" + json.dumps(found), file=sys.__stdout__, flush=True)


def child(name, hooked):
    faulthandler.enable()
    faulthandler.dump_traceback_later(LIMIT - 5, exit=True)
    suite = unittest.defaultTestLoader.loadTestsFromName("test." + name)
    if not hooked:
        suite.run(Result())
        return
    import torch  # noqa: F401

    from minidynamo import config, records
    from minidynamo.convert import convert_frame, entries
    from minidynamo.convert.conversion import Conversion
    from minidynamo.frame import frame_hook

    ours = (
        "minidynamo's own code",
        "miniinductor's own code",
        "torch's own code",
        "not a function",
        "a generator, coroutine or comprehension",
    )
    reason = convert_frame.skip_reason
    convert_frame.skip_reason = lambda code: (
        "the tests' own runner"
        if code.co_filename == __file__
        else found
        if (found := reason(code)) in ours
        else None
    )
    compiler = convert_frame.FrameCompiler("eager")
    # frames without a tensor operation are replaced, too
    Conversion.is_worth_it = lambda conversion, frame: True
    config.guard_parameter_metadata = False
    frame_hook.enabled(suite.run, compiler)(Result())
    say(
        {
            "(counts)": {
                "frames": sum(records.counters["frames"].values()),
                "replaced": len(entries.CODES),
                "errors": dict(records.counters["errors"]),
                "breaks": sum(records.counters["graph_breaks"].values()),
            }
        }
    )


def run(name, hooked):
    """({test: outcome}, counts)."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, "--child", name, str(int(hooked))],
        capture_output=True,
        text=True,
    )
    outcomes = {}
    for line in done.stdout.splitlines():
        if line.startswith("@"):
            outcomes.update(json.loads(line[1:]))
    if done.returncode:
        outcomes["(the process)"] = f"ended with {done.returncode}: {done.stderr[-3000:]}"
    return outcomes, outcomes.pop("(counts)", {})


def compare(name):
    """(number of tests, differences, counts of the hooked run)."""
    plain, _ = run(name, False)
    hooked, counts = run(name, True)
    kind = lambda outcome: (outcome or "missing").partition(":")[0]
    differences = [
        f"{test}: plain {kind(plain.get(test))}, hooked {hooked.get(test, 'missing')}"
        for test in sorted({*plain, *hooked})
        if kind(plain.get(test)) != kind(hooked.get(test)) and test.partition(" (")[0] not in EXCEPT
    ]
    return len(plain), differences, counts


def main(names):
    try:
        import test.support  # noqa: F401
    except ImportError:
        print(f"{sys.executable} comes without CPython's test package: nothing was compared")
        return 0
    bad = 0
    for name in names or FILES:
        total, differences, counts = compare(name)
        print(
            f"{name:18} {total:4} tests, {len(differences)} differences; "
            f"{counts.get('frames', 0)} frames compiled, "
            f"{counts.get('replaced', 0)} code objects replaced, {counts.get('breaks', 0)} breaks"
            + "".join(
                f"\n    compiler: {count} x {text[:150]}"
                for text, count in counts.get("errors", {}).items()
            ),
            flush=True,
        )
        for text in differences:
            print("   ", text.replace("\n", "\n        "))
        bad += len(differences)
    return bad > 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], sys.argv[3] == "1")
    else:
        sys.exit(main(sys.argv[1:]))
