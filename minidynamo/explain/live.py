"""`python -m minidynamo explore script.py`: a page that follows the file.

    $ python -m minidynamo explore example.py
    http://127.0.0.1:40123/?token=...      # source | IR | assembly; save the file: what changed?

In:   a script.   Out: a server on the loopback interface, until Ctrl-C.

Whenever the file is saved, or a switch of `miniinductor.config` is set on the page, the program
runs again in a fresh process (`explain`), which is ended after `--seconds`.  The page gets the
document of each run and compares it with the one before (page/live.js).  Whoever does not have the
token of the address gets 403, and so does a page of another site that has found the port.
# PyTorch: nothing like it; Compiler Explorer does this for C++.
"""

import contextlib
import hashlib
import hmac
import http.server
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from miniinductor.options import did_you_mean

from .page import FOLDER, script, style
from .report import DATA

USAGE = """usage: python -m minidynamo explore [options] script.py [arguments]
       serves a page on 127.0.0.1 that compiles the script again whenever it is saved
       --seconds N  a run is ended after so long (60)
       --port N     of the address (any that is free)
       --redirect   torch.compile is minidynamo.compile for these runs

example:  python -m minidynamo explore example.py"""
SWITCHES = {  # of miniinductor.config: boxes on the page
    "fusion": "neighbouring loops become one kernel",
    "inlining": "values are computed where they are read instead of being stored",
    "loop_reordering": "loops change their order to join a reduction",
    "buffer_reuse": "the memory of a dead buffer serves a later one",
    "in_place": "kernels write over what is read for the last time",
    "foreach": "alike kernels become one",
    "split_reductions": "a reduction with few outputs is done in parts",
    "vectorize": "inner loops use SIMD",
    "openmp": "outer loops run on all threads",
    "tiling": "transposed accesses run over tiles",
    "row_reductions": "sums over rows add whole rows",
}
OPTIONS = ("--seconds", "--port", "--redirect", "-h", "--help")
LOOK = 0.2  # seconds between two looks at the file
KEPT = 20_000  # characters of a program's output
LARGEST = 1_000_000  # bytes of a request


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass
class Workshop:
    """A script, its runs, and what the page asks about them.

    version: counts what the page has to show anew; data: the document of the newest run that
    compiled something, as its page holds it."""

    path: Path
    arguments: list[str] = field(default_factory=list)
    limit: float = 60.0
    options: list[str] = field(default_factory=list)
    switches: dict[str, bool] = field(default_factory=lambda: dict.fromkeys(SWITCHES, True))
    version: int = 0
    status: str = "starting"
    data: str = ""
    page: str = ""
    begun: float = 0.0
    seconds: float = 0.0
    output: deque[str] = field(default_factory=deque)
    done: threading.Event = field(default_factory=threading.Event)
    process: subprocess.Popen | None = None
    wanted: tuple = ()  # what the newest run was started for

    def text(self) -> str:
        try:
            return self.path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""  # an editor is just replacing it

    def follow(self) -> None:
        """Run the script whenever it, or a switch, has changed; until `done`."""
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder, "page.html")
            while not self.done.is_set():
                text = self.text()
                wanted = text, tuple(self.switches.items())
                if text and wanted != self.wanted:
                    self.wanted = wanted
                    self.stop()
                    page.unlink(missing_ok=True)
                    self.start(page)
                self.look(page)
                time.sleep(LOOK)
            self.stop()

    def start(self, page: Path) -> None:
        """A fresh process that explains the script."""
        sets = [word for name, on in self.switches.items() if not on for word in set_option(name)]
        command = [sys.executable, "-m", "minidynamo", "explain", "--assembly", *self.options]
        command += [*sets, "-o", str(page), str(self.path), *self.arguments]
        places = [str(FOLDER.parent.parent.parent), os.environ.get("PYTHONPATH", "")]
        self.output = deque(maxlen=200)
        self.status, self.begun, self.seconds = "compiling", time.monotonic(), 0.0
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, places))},
            start_new_session=True,
        )
        reader = threading.Thread(target=listen, args=(self.process, self.output), daemon=True)
        reader.start()

    def look(self, page: Path) -> None:
        """Has the run ended, or does it take too long?"""
        if self.process is None:
            return
        self.seconds = time.monotonic() - self.begun
        code = self.process.poll()
        if code is None and self.seconds < self.limit:
            return
        self.stop()
        if code is None:
            self.status = f"ended after {self.limit:g} s: the program had not come to its end"
        elif page.is_file():
            self.page = page.read_text(encoding="utf-8")
            found = DATA.search(self.page)
            self.data = found[1].strip() if found else ""
            self.status = "ready" if code == 0 else f"ready; the program ended with {code}"
        else:
            self.status = f"nothing was compiled; the program ended with {code}"
        self.version += 1

    def stop(self) -> None:
        """End the run with all processes that it has started."""
        process, self.process = self.process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def told(self) -> dict[str, Any]:
        """What the page asks for again and again."""
        return {
            "version": self.version,
            "status": self.status,
            "seconds": round(self.seconds, 1),
            "limit": self.limit,
            "switches": self.switches,
            "output": "".join(self.output)[-KEPT:],
            "source": digest(self.text()),
        }

    def write(self, before: str, text: str) -> bool:
        """Save what was edited on the page, unless the file has changed meanwhile."""
        if digest(self.text()) != before:
            return False
        self.path.write_text(text, encoding="utf-8")
        return True


def set_option(name: str) -> tuple[str, str]:
    return "--set", f"{name}=False"


def listen(process: subprocess.Popen, output: deque[str]) -> None:
    """What the program prints, a line at a time; the last lines are kept."""
    assert process.stdout is not None
    for line in process.stdout:
        output.append(line[:KEPT])


# --- the server -----------------------------------------------------------------------------------
class Server(http.server.ThreadingHTTPServer):
    """On the loopback interface; what it serves is a workshop's."""

    daemon_threads = True

    def __init__(self, workshop: Workshop, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.workshop, self.token = workshop, secrets.token_urlsafe(24)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/?token={self.token}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not printed: the terminal is the user's."""

    def is_allowed(self) -> bool:
        """Does the request have the token, and is it meant for this machine?"""
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        given = self.headers.get("X-Token") or query.get("token", [""])[0]
        port = self.server.server_address[1]
        hosts = (f"127.0.0.1:{port}", f"localhost:{port}")
        is_here = self.headers.get("Host") in hosts
        return is_here and hmac.compare_digest(given.encode(), self.server.token.encode())

    def answer(self, status: int, text: str, kind: str = "application/json") -> None:
        body = text.encode()
        self.send_response(status)
        for name, value in {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "Content-Security-Policy": "frame-ancestors 'none'",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        workshop, path = self.server.workshop, urllib.parse.urlsplit(self.path).path
        if not self.is_allowed():
            self.answer(
                403, "no: the address has a token, which `explore` has printed", "text/plain"
            )
        elif path == "/":
            self.answer(200, render(workshop, self.server.token), "text/html")
        elif path == "/state":
            self.answer(200, json.dumps(workshop.told()))
        elif path == "/data":
            self.answer(200, workshop.data, "text/plain")
        elif path == "/source":
            self.answer(200, workshop.text(), "text/plain")
        elif path == "/page":
            self.answer(200, workshop.page or "nothing was compiled yet", "text/html")
        else:
            self.answer(404, "there is no such page", "text/plain")

    def do_POST(self) -> None:
        workshop, length = self.server.workshop, self.headers.get("Content-Length", "")
        if not self.is_allowed():
            return self.answer(403, "no", "text/plain")
        if not length.isdigit() or int(length) > LARGEST:
            return self.answer(413, "too long", "text/plain")
        try:
            asked = json.loads(self.rfile.read(int(length)))
            if self.path == "/switches":
                known = {name: bool(on) for name, on in asked.items() if name in SWITCHES}
                workshop.switches = workshop.switches | known
            elif self.path == "/source":
                if not workshop.write(str(asked["before"]), str(asked["text"])):
                    return self.answer(409, "the file has changed on disk meanwhile", "text/plain")
            else:
                return self.answer(404, "there is no such page", "text/plain")
        except (ValueError, KeyError, AttributeError) as error:
            return self.answer(400, f"{type(error).__name__}: {error}", "text/plain")
        return self.answer(200, json.dumps(workshop.told()))


def render(workshop: Workshop, token: str) -> str:
    """The page; what it shows comes by requests."""
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        autoescape=True, loader=jinja2.FileSystemLoader(FOLDER), trim_blocks=True
    )
    return environment.get_template("live.html.jinja").render(
        name=workshop.path.name,
        token=token,
        switches=SWITCHES,
        style=Markup(style()),
        script=Markup(script("live.js")),
    )


# --- the command ----------------------------------------------------------------------------------
def main(arguments: list[str]) -> int:
    """Serve until Ctrl-C; the exit status."""
    rest, values, options = list(arguments), {"--seconds": "60", "--port": "0"}, []
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option in ("-h", "--help"):
            print(USAGE)
            return 0
        if option not in OPTIONS:
            print(f"there is no option {option}{did_you_mean(option, OPTIONS)}", file=sys.stderr)
            return 2
        if option in values and not (rest and rest[0].isdigit()):
            print(f"{option} needs a number behind it", file=sys.stderr)
            return 2
        if option in values:
            values[option] = rest.pop(0)
        else:
            options.append(option)
    if not rest or not Path(rest[0]).is_file():
        print(f"there is no file {rest[0]!r}" if rest else USAGE, file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # with the run that is going on
    workshop = Workshop(Path(rest[0]), rest[1:], float(values["--seconds"]), options)
    return serve(Server(workshop, int(values["--port"])))


def serve(server: Server) -> int:
    """Follow the script and answer the page until Ctrl-C."""
    workshop = server.workshop
    follower = threading.Thread(target=workshop.follow)
    follower.start()
    print(server.address, flush=True)
    print(f"a run is ended after {workshop.limit:g} s; Ctrl-C ends this", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        return 0
    finally:
        workshop.done.set()
        follower.join()
        server.server_close()
    return 0
