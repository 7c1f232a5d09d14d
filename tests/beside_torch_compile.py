"""minidynamo.compile before, after, inside and around torch.compile: what the test in
test_neighbours.py runs in a process of its own.

    python tests/beside_torch_compile.py    # one line per scenario: its name, ok or what is wrong
"""

import threading
import traceback

import torch

import minidynamo

X = torch.linspace(-2, 2, 8)


def f(x):
    return (x.sin() + 1) * 2


def prints(x):
    print(end="")
    return x + 1


def fails(gm, inputs):
    raise RuntimeError("a backend that fails")


def ours(function):
    return minidynamo.compile(function, backend="eager")


def theirs(function, **options):
    return torch.compile(function, backend="eager", **options)


def is_like(function, plain, calls=3):
    for _ in range(calls):
        assert torch.allclose(function(X), plain(X)), function


def before():
    is_like(ours(f), f)
    is_like(theirs(f), f)


def after_it_raised():
    for bad in (theirs(prints, fullgraph=True), torch.compile(f, backend=fails)):
        try:
            bad(X)
            raise AssertionError("it did not raise")
        except Exception as error:
            assert not isinstance(error, AssertionError)
        minidynamo.reset()
        is_like(ours(f), f)


def inside():
    inner = theirs(f)
    is_like(ours(lambda x: inner(x.cos()) + 1), lambda x: f(x.cos()) + 1)
    assert "f" not in minidynamo.counters["frames"]  # it is torch's
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def around():
    inner = ours(f)
    is_like(theirs(lambda x: inner(x.cos()) + 1), lambda x: f(x.cos()) + 1)
    assert not minidynamo.counters["frames"]  # under torch's evaluator it runs as it is


def around_a_module():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
    inner = ours(model)
    is_like(theirs(lambda x: inner(x.cos()) + 1), lambda x: model(x.cos()) + 1)


def of_each_other():
    is_like(ours(theirs(f)), f)
    is_like(theirs(ours(f)), f)


def in_turns():
    def step_ours(x, n):
        return step_theirs_compiled(x + 1, n - 1) if n else x + 1

    def step_theirs(x, n):
        return step_ours_compiled(x * 2, n - 1) if n else x * 2

    step_ours_compiled, step_theirs_compiled = ours(step_ours), theirs(step_theirs)
    is_like(lambda x: step_ours_compiled(x, 3), lambda x: (((x + 1) * 2) + 1) * 2)
    is_like(lambda x: step_theirs_compiled(x, 3), lambda x: (((x * 2) + 1) * 2) + 1)


def in_threads():
    wrong = []

    def work(compiler, function):
        try:
            for number in range(15):
                is_like(compiler(function), function, calls=1)
                if compiler is ours and number % 5 == 0:
                    minidynamo.reset()
        except Exception:
            wrong.append(traceback.format_exc())

    functions = (lambda x: x.sin() + 1, lambda x: x.cos() * 3)
    threads = [
        threading.Thread(target=work, args=(compiler, function))
        for compiler, function in zip((ours, theirs), functions)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong


SCENARIOS = (
    before,
    after_it_raised,
    inside,
    around,
    around_a_module,
    of_each_other,
    in_turns,
    in_threads,
)


def main():
    minidynamo.config.raise_internal_errors = True
    for scenario in SCENARIOS:
        minidynamo.reset()
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        try:
            scenario()
            print(scenario.__name__, "ok", flush=True)
        except Exception:
            print(scenario.__name__, traceback.format_exc().replace("\n", "; "), flush=True)


if __name__ == "__main__":
    main()
