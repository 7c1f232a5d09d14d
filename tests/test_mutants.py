"""Each mutant still changes something that is there: the generators' proof outlives renamings."""

import inspect
import os
import sys
import types

import pytest

import minidynamo.functions  # noqa: F401
from tests.soundness import mutants

PACKAGES = ("minidynamo", "miniinductor")


def names():
    """{a module of ours, or one of its classes: the names that it has or inherits}."""
    found = {}
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in PACKAGES and isinstance(module, types.ModuleType):
            found[module] = set(vars(module))
            for value in list(vars(module).values()):
                if isinstance(value, type) and value.__module__ == name:
                    fields = {n for c in value.__mro__ for n in inspect.get_annotations(c)}
                    found[value] = {*dir(value), *fields}
    return found


def new_names(before):
    """Names that nobody asks for: what was to be replaced is called otherwise by now."""
    added = {place: vars(place).keys() - known for place, known in before.items()}
    return [f"{place}.{name}" for place in added for name in added[place] if name[:2] != "__"]


def wrong_with(mutant, before):
    """What goes wrong as the mutant is made; it stays in a child of this process."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            mutant.change()
            text = ", ".join(new_names(before))
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(writer, text.encode()[:1000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return text


def test_every_mutant_finds_what_it_changes():
    mutants.load()
    before = names()
    found = {name: wrong_with(mutant, before) for name, mutant in mutants.MUTANTS.items()}
    assert len(found) > 110
    assert not {name: text for name, text in found.items() if text}


@pytest.mark.parametrize("name", ["Compilation", "no_such_function"])
def test_the_check_itself_fails_on_a_planted_mutant(name):
    import miniinductor.compile as driver

    planted = mutants.Mutant("planted", lambda: setattr(driver, name, None), ())
    text = wrong_with(planted, names())
    assert (name == "Compilation") == (text == "")
