"""`embercache top`: the status page in a terminal."""
import os
import pty
import re
import signal
import socket
import subprocess

import ec_server
from conftest import PROGRAM, global_cache, picture, run


def test_it_shows_what_the_server_says(start, tmp_path):
    with start(*global_cache(tmp_path)) as server:
        item = ec_server.image_item(picture("top"))
        for _ in range(3):
            assert server.encode(item).status == 200
        assert server.encode(ec_server.image_item(b"no image")).status == 400
        text = run("top", server.url, "--once").stdout
    assert "\x1b" not in text
    assert "serving" in text.splitlines()[0]
    assert "66.7 % since the start" in text
    assert "3 since the start, 1 failed" in text
    assert re.search(r"host cache +#+\.+ +2 ", text) and re.search(r"computed +#+\.+ +1 ", text)
    assert re.search(r"Store +file is up", text)
    assert text.count("closed") == 2
    assert re.search(r"det16 +image, rows of", text)
    assert re.search(r"\d\d:\d\d:\d\d INVALID item 0: ", text)


def test_it_is_drawn_again_each_second_and_outlives_the_server(start):
    leader, follower = pty.openpty()
    with start() as server:
        process = subprocess.Popen([PROGRAM, "top", server.url], stdout=follower, stderr=follower)
        os.close(follower)
        shown = b""
        while shown.count(b"\x1b[H") < 3:
            shown += os.read(leader, 4096)
        assert b"In progress" in shown and b"NO ANSWER" not in shown
        server.stop()
        while b"NO ANSWER" not in shown:
            shown += os.read(leader, 4096)
    process.send_signal(signal.SIGINT)
    assert process.wait(ec_server.START_SECONDS) == -signal.SIGINT
    os.close(leader)


def test_a_server_that_does_not_answer_is_named():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        done = run("top", f"http://{address}", "--once", exit_code=1)
    assert address in done.stderr and done.stderr.count("\n") == 1


def test_what_is_no_address_is_refused():
    assert "'http://x:y'" in run("top", "http://x:y", "--once", exit_code=2).stderr
