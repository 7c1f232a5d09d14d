"""`python -m minidynamo explore`: who is answered, and what a saved file leads to."""

import json
import threading
import time
import urllib.error
import urllib.request
import zlib
from base64 import b64decode

import pytest

import miniinductor
from minidynamo.explain import live

PROGRAM = """import torch, minidynamo
@minidynamo.compile
def f(x):
    return torch.relu(x).sum(-1) * 2
with torch.no_grad():
    f(torch.ones(8, 8))
"""


@pytest.fixture
def server(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    found = live.Server(live.Workshop(path))
    follower = threading.Thread(target=found.workshop.follow)
    follower.start()
    threading.Thread(target=found.serve_forever, daemon=True).start()
    yield found
    found.workshop.done.set()
    follower.join()
    found.shutdown()
    found.server_close()


def asked(server, path, body=None, **headers):
    """(status, text)"""
    address = f"http://127.0.0.1:{server.server_address[1]}{path}"
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(address, data, headers)) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def wait(server, version):
    limit = time.monotonic() + 120
    while server.workshop.version < version and time.monotonic() < limit:
        time.sleep(0.1)
    assert server.workshop.version == version, server.workshop.told()
    return server.workshop.told()


def test_a_saved_file_is_compiled_again_and_a_loop_is_ended(server, capsys):
    assert server.server_address[0] == "127.0.0.1"
    token = {"X-Token": server.token}
    for path in ("/", "/state", "/data", "/source", "/page"):
        assert asked(server, path)[0] == asked(server, f"{path}?token=x")[0] == 403
        assert asked(server, path, **token, Host="evil.example")[0] == 403
        assert asked(server, path, **token)[0] == 200
    assert asked(server, "/switches", {"fusion": False})[0] == 403
    assert wait(server, 1)["status"] == "ready"
    document = json.loads(zlib.decompress(b64decode(asked(server, "/data", **token)[1])))
    (kernel,) = document["frames"][0]["entries"][0]["kernels"]
    assert kernel["assembly"] and document["opens"]["place"]["line"] == 6
    told = json.loads(asked(server, "/state", **token)[1])
    server.workshop.limit = 2.0
    loop = "print('begun', flush=True)\nwhile True: pass\n"
    stale = {"before": "of another file", "text": loop}
    assert asked(server, "/source", stale, **token)[0] == 409
    assert asked(server, "/source", stale | {"before": told["source"]}, **token)[0] == 200
    assert "ended after 2 s" in wait(server, 2)["status"] and server.workshop.process is None
    assert asked(server, "/switches", ["fusion"], **token)[0] == 400
    assert set(live.SWITCHES) <= set(miniinductor.config.switches())
    assert live.main(["--secnds", "x.py"]) == 2 and "mean --seconds" in capsys.readouterr().err
