"""The public API is frozen: signatures, docstrings and options are those of `public_api.json`.

# writes the file anew: a change of the API, to be told in the README
python tests/test_public_api.py
"""

import inspect
import json
import sys
import types
from pathlib import Path

FILE = Path(__file__).with_name("public_api.json")


def described(value) -> dict:
    """Signature and docstring of a function or class."""
    found = {"doc": " ".join((inspect.getdoc(value) or "").split())}
    try:
        found["signature"] = str(without_types(inspect.signature(value)))
    except (TypeError, ValueError):
        pass
    return found


def without_types(signature: inspect.Signature) -> inspect.Signature:
    """Annotations may be added: who calls it sees names, kinds and defaults."""
    parameters = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return signature.replace(parameters=parameters, return_annotation=signature.empty)


def public_names(module: types.ModuleType) -> dict:
    """The module's own functions, classes and values, without its submodules."""
    names = getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]
    found = {}
    for name in sorted(names):
        value = getattr(module, name)
        if isinstance(value, types.ModuleType):
            found[name] = {"module": value.__name__}
        elif callable(value):
            found[name] = described(value)
        else:
            found[name] = {"type": type(value).__name__}
    return found


def options(module: types.ModuleType) -> dict:
    """Every switch with its default's type; the environment may change the default itself."""
    kinds = (bool, int, str, tuple)
    return {
        n: type(v).__name__ for n, v in vars(module).items() if isinstance(v, kinds) and n[0] != "_"
    }


def public_api() -> dict:
    import minidynamo
    import miniinductor
    from minidynamo import records as dynamo_records
    from minidynamo.explain.explanation import STAGES, Explanation, FrameExplanation
    from miniinductor import records as inductor_records

    def members(cls: type) -> dict:
        return {
            n: described(v) for n, v in sorted(vars(cls).items()) if n[0] != "_" and callable(v)
        }

    fields = {
        cls.__name__: [
            *cls.__dataclass_fields__,
            *[name for name, value in vars(cls).items() if isinstance(value, property)],
        ]
        for module in (dynamo_records, inductor_records)
        for cls in vars(module).values()
        if isinstance(cls, type) and cls.__module__ == module.__name__
        if hasattr(cls, "__dataclass_fields__")
    }
    return {
        "minidynamo": public_names(minidynamo),
        "miniinductor": public_names(miniinductor),
        "minidynamo.config": options(minidynamo.config),
        "miniinductor.config": options(miniinductor.config),
        "explain stages": list(STAGES),
        "Explanation": members(Explanation),
        "FrameExplanation": members(FrameExplanation),
        "records": fields,
    }


def flat(api: dict, path: str = "") -> dict:
    found = {}
    for name, value in api.items():
        if isinstance(value, dict) and value:
            found |= flat(value, f"{path}{name}: ")
        else:
            found[f"{path}{name}"] = value
    return found


def as_text(api: dict) -> str:
    """JSON with as many entries on a line as fit."""
    sections = []
    for name, section in sorted(api.items()):
        text, column = "", 0
        for key in section if isinstance(section, list) else sorted(section):
            entry = json.dumps(key)
            if isinstance(section, dict):
                entry += f": {json.dumps(section[key], sort_keys=True)}"
            if not text or column + len(entry) > 97:
                text, column = f"{text},\n  {entry}" if text else f"\n  {entry}", 2 + len(entry)
            else:
                text, column = f"{text}, {entry}", column + 2 + len(entry)
        brackets = "[]" if isinstance(section, list) else "{}"
        sections.append(f" {json.dumps(name)}: {brackets[0]}{text}{brackets[1]}")
    return "{\n" + ",\n".join(sections) + "\n}\n"


def test_nothing_that_was_public_has_changed():
    """New names are fine; what was there stays as it was."""
    before, now = flat(json.loads(FILE.read_text())), flat(public_api())
    changed = {}
    for name, value in before.items():
        if isinstance(value, list):
            missing = [item for item in value if item not in now.get(name, [])]
            if missing:
                changed[name] = f"misses {missing}"
        elif now.get(name) != value:
            changed[name] = f"was {value!r}, is {now.get(name)!r}"
    assert not changed


if __name__ == "__main__":
    sys.path.insert(0, str(FILE.parent.parent))
    FILE.write_text(as_text(public_api()))
