"""`python -m minidynamo explain script.py [arguments] -o page.html`: run a program, write its page.

In:   the command's arguments.   Out: the program's exit status, and one HTML file.
"""

import argparse


def main(arguments: list[str]) -> int:
    """Run the program that `arguments` name; the exit status that it would have had."""
    parser = argparse.ArgumentParser(prog="python -m minidynamo explain", description=__doc__)
    parser.parse_args(arguments)
    return 2
