"""Tables of small programs, written as text: a backslash and `n` in them stand for a new line."""

import re
from collections.abc import Callable


def items(text: str, mark: str = "; ") -> list[str]:
    """What lies between the marks; a line may end at each of them."""
    split = re.escape(mark).replace(r"\ ", r"\s+")
    return [item.replace(r"\n", "\n") for item in re.split(split, text.strip())]


def statements(text: str) -> list[str]:
    """What lies between " | "."""
    return items(text, " | ")


def named(text: str) -> dict[str, str]:
    """name -> text of items `name: text`."""
    return dict(item.split(": ", 1) for item in items(text))


def lambdas(parameters: str, space: dict, text: str) -> dict[str, Callable]:
    """name -> function of items `name: expression`."""
    return {name: eval(f"lambda {parameters}: {body}", space) for name, body in named(text).items()}


def rows(text: str) -> list[list[str]]:
    """The cells between " :: " of each row; a line that begins with spaces goes on with a row, and
    one that begins with # is a comment."""
    joined = re.sub(r"\n +", " ", re.sub(r"\n +(?=\\)", "", text.strip()))
    lines = [line.replace(" ::", " :: ") for line in joined.split("\n") if line[0] != "#"]
    return [items(line, " :: ") for line in lines]
