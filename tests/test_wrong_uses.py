"""What a user is told who asks for what there is not: their own line, and what to do."""

import subprocess
import sys

import pytest
import torch

import minidynamo
import miniinductor
from minidynamo.errors import BackendError, SpecializationError, Unsupported


@pytest.fixture(autouse=True)
def fresh():
    minidynamo.reset()


def double(x):
    return x * 2


def written(x):
    return x.mul_(2) + 1


def told(kind, use, *parts):
    """The text of what `use` raises, in which each of the parts stands."""
    with pytest.raises(kind) as error:
        use()
    text = str(error.value)
    assert all(part in text for part in parts), text
    return text


# --- what is not traced at all, under fullgraph=True ----------------------------------------------
def hooked(x):
    y = x * 2
    y.register_hook(print)
    return y


def walks_what_changes(x, table):
    for key in table:
        if key == 0:
            table.clear()
        table[key + 1] = x
    return x + 1


def test_a_skipped_frame_raises_under_fullgraph():
    x = torch.ones(2, requires_grad=True)
    for function, args, reason in (
        (hooked, (x,), "a hook on the gradient"),
        *((walks_what_changes, (x, {key: 2}), "keys change") for key in (0, 1)),
    ):
        minidynamo.compile(hooked, backend="eager")(x)  # is skipped in silence: then asked again
        compiled = minidynamo.compile(function, backend="eager", fullgraph=True)
        for _ in range(2):
            told(Unsupported, lambda: compiled(*args), reason, function.__name__, __file__)
    minidynamo.reset()
    module = torch.nn.Module()
    module.forward = hooked
    told(Unsupported, lambda: minidynamo.compile(module, fullgraph=True)(x), "a hook on")


def test_a_function_that_is_never_traced_is_refused_under_fullgraph():
    def generator(x):
        yield x

    c_code = dict.fromkeys((torch.sin, torch.nn.functional.gelu), "written in C")
    own_code = {torch.nn.functional.relu: "torch's own code", generator: "a generator"}
    for function, reason in {**c_code, **own_code}.items():
        minidynamo.compile(function)
        told(Unsupported, lambda: minidynamo.compile(function, fullgraph=True), reason)
    wrapped = minidynamo.compile(torch.no_grad()(double), backend="eager", fullgraph=True)
    assert wrapped(torch.ones(2)).tolist() == [2, 2] and minidynamo.counters["graphs"].total() == 1


# --- what is given to the public functions --------------------------------------------------------
def test_what_there_is_not_is_named_with_what_there_is():
    compiled = minidynamo.compile
    told(ValueError, lambda: compiled(double, backend="inductr"), "'inductr'", "eager, inductor")
    told(ValueError, lambda: compiled(double, mode="fast"), "mode='fast'", "'max-autotune'")
    told(ValueError, lambda: compiled(double, dynamic="yes"), "dynamic='yes'", "True or False")
    told(TypeError, lambda: compiled(torch.ones(2)), "a function or a module", "Tensor")
    told(TypeError, lambda: minidynamo.explain(3)(torch.ones(2)), "a function or a module", "int")
    told(TypeError, lambda: minidynamo.explain(double, torch.ones(2)), "explain(f)(x)")
    told(TypeError, lambda: minidynamo.disable(3), "a function or a module", "int")


@pytest.mark.parametrize("mark", [minidynamo.mark_dynamic, minidynamo.mark_static])
def test_a_size_that_there_is_not_cannot_be_marked(mark):
    x = torch.randn(4, 5)
    for wrong in (2, -3, [0, 7]):
        told(IndexError, lambda wrong=wrong: mark(x, wrong), "Dimension out of range")
    told(IndexError, lambda: mark(torch.tensor(1.0), 0))
    told(TypeError, lambda: mark(3, 0))
    for wrong in ("0", 1.0):
        told(TypeError, lambda wrong=wrong: mark(x, wrong))
    assert not {"_minidynamo_dynamic", "_minidynamo_static"} & set(vars(x))


@pytest.mark.parametrize(
    "options, name, value, kind, parts",
    [
        (minidynamo.config, "recompile_limit", "three", TypeError, ["recompile_limit is a number"]),
        (minidynamo.config, "debug", None, TypeError, ["debug is a number", "None"]),
        (miniinductor.config, "fusion", "off", TypeError, ["fusion is a number or a bool"]),
        (miniinductor.config, "partition", "mincut", ValueError, ["min-cut or", "'mincut'"]),
        (miniinductor.config, "cpu_backend", "c++", ValueError, ["cpp or triton"]),
        (miniinductor.config, "matmul_templates", "allways", ValueError, ["always or unaligned"]),
        (miniinductor.config, "fuson", False, AttributeError, ["did you mean fusion?"]),
    ],
)
def test_an_option_takes_no_value_that_means_nothing(options, name, value, kind, parts):
    before = dict(vars(options))
    told(kind, lambda: setattr(options, name, value), *parts)
    told(kind, lambda: options.patch(**{name: value}).__enter__(), *parts)
    assert vars(options) == before


# --- what is met while a function is compiled -----------------------------------------------------
def test_a_break_under_fullgraph_names_the_line_and_a_way_out():
    def inner(x):
        return open("/dev/null").read() or x

    def outer(x):
        return inner(x * 2)

    line = inner.__code__.co_firstlineno + 1
    text = told(
        Unsupported,
        lambda: minidynamo.compile(outer, fullgraph=True)(torch.ones(3)),
        "the call of io.open()",
        f'test_wrong_uses.py", line {line}, in inner',
        f"line {line + 3}, in outer",
        "hint: move it out of the compiled function",
    )
    assert text.index("in outer") < text.index("in inner")  # as a traceback has them


def test_a_marked_size_that_is_needed_names_the_line_and_a_way_out():
    def needs(x):
        return sum(x[i] for i in range(x.shape[0]))

    x = torch.randn(4, 5)
    minidynamo.mark_dynamic(x, 0)
    told(
        SpecializationError,
        lambda: minidynamo.compile(needs)(x),
        "x.shape[0] was marked dynamic",
        f"test_wrong_uses.py:{needs.__code__.co_firstlineno + 1} needs it as the number 4",
        "hint: change that line, or leave the size unmarked",
    )


# --- backends of the user's -----------------------------------------------------------------------
WRONG_RESULTS = {  # the one result is no tuple, too few, too many; `x` has one row: it would pass
    "Tensor": lambda x: x * 2,
    "tuple of 0": lambda x: (),
    "tuple of 2": lambda x: (x, x),
    "NoneType": lambda x: None,
}


@pytest.mark.parametrize("seen", WRONG_RESULTS)
@pytest.mark.parametrize("gives", ["a new tensor", "what it wrote"])
def test_a_backend_whose_code_gives_other_results_is_named(seen, gives):
    def mine(gm, example_inputs):
        return lambda *inputs: WRONG_RESULTS[seen](inputs[0])

    program = double if gives == "a new tensor" else written
    use = minidynamo.compile(program, backend=mine)
    if seen.startswith("tuple"):
        told(ValueError, lambda: use(torch.ones(1, 4)), "values to unpack")
    else:
        told(
            BackendError,
            lambda: use(torch.ones(1, 4)),
            f"the backend 'mine' made gives a {seen}",
            "hint: a graph's results are a tuple",
        )


def test_misspelt_words_are_refused():
    def f(x):
        return x + 1

    with pytest.raises(TypeError, match="did you mean fullgraph"):
        minidynamo.compile(f, fulgraph=True)
    with pytest.raises(TypeError, match="no option 'bckend'.*did you mean backend"):
        minidynamo.explain(f, bckend="eager")(torch.ones(2))
    with pytest.raises(ValueError, match="unknown backend 'indctor'.*did you mean inductor"):
        minidynamo.compile(f, backend="indctor")


def test_a_backend_is_found_in_a_new_process():
    code = "import minidynamo.backends as b; print(b.lookup_backend('aot_eager')[0])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.stdout == "aot_eager\n", ran.stderr


def test_errors_show_the_users_lines_alone():
    def f(x):
        return torch.ops.aten.bogus(x)

    with pytest.raises(minidynamo.Unsupported, match="no attribute 'bogus'") as caught:
        minidynamo.compile(f, fullgraph=True, backend="eager")(torch.ones(2))
    assert len([entry for entry in caught.traceback if "minidynamo" in str(entry.path)]) <= 3


def test_a_cache_that_cannot_be_written_is_told_once(tmp_path, caplog):
    from miniinductor import toolchain

    toolchain.temporary_folder.cache_clear()
    (tmp_path / "file").touch()
    with miniinductor.config.patch(cache_dir=str(tmp_path / "file" / "folder")):
        for number in (1.25, 2.25):
            minidynamo.compile(lambda x: x * number + 77)(torch.ones(2))
    assert len([m for m in caplog.messages if "are not kept in" in m]) == 1
