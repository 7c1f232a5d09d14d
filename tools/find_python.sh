#!/bin/sh
# Run a script with the chosen interpreter, or with the first CPython 3.11-3.13 that works.
# usage: find_python.sh "$PYTHON" script args...
wanted=$1
shift
for candidate in $wanted python3.11 python3.12 python3.13 python3; do
    if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
        exec "$candidate" "$@"
    fi
    if [ -n "$wanted" ]; then
        echo "PYTHON=$wanted is no working CPython 3.11, 3.12 or 3.13: name one that is." >&2
        exit 1
    fi
done
echo "No Python 3.11, 3.12 or 3.13 was found: install one (for example python3.11 with its venv module and headers)." >&2
exit 1
