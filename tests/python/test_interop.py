"""Two Python processes and one server of the C++ program on one store: equal keys, equal bytes."""
import hashlib
import json
import os
import pathlib
import re

import ec_server
import numpy as np
from conftest import PATIENT_S, ROOT, run_python

import embercache

PROGRAM = pathlib.Path(os.environ.get("PROGRAM_UNDER_TEST", ec_server.PROGRAM))
TOKENS, HIDDEN = 784, 192

READER = """
import hashlib, sys, embercache
embercache.set_log_level("error")
folder, namespace, path = sys.argv[1:]
cache = embercache.open("file", {"dir": folder}, namespace=bytes.fromhex(namespace), hidden=192,
                        max_pool_bytes=16 << 20, lookup_timeout_s=60)
key = cache.media_key(open(path, "rb").read())
found = cache.get(key)
print(key.hex, found.source, hashlib.sha256(found.numpy().tobytes()).hexdigest())
"""


def test_two_python_processes_and_a_server_agree_on_keys_and_bytes(tmp_path):
    flags = ("--enable-mm-global-cache", "--file-store-dir", tmp_path,
             "--mm-global-cache-size-gb", 0.1, "--lookup-timeout-ms", 60000,
             "--request-timeout-ms", 120000)
    photograph = ROOT / ".deps/media/coffee.png"
    other = ROOT / ".deps/media/china.jpg"
    with ec_server.Server("--model", ROOT / ".deps/models/det16", *flags, program=PROGRAM) as server:
        answer = server.encode(ec_server.image_item(photograph.read_bytes()), accept="*/*")
        [item], tensors = ec_server.read_safetensors(answer.body)
        digest = hashlib.sha256(bytes(tensors["item_0"])).hexdigest()
        server.wait_metric(1, "embercache_published_total", result="stored")
        namespace = _namespace(server.request("GET", "/v1/stats").json())

        # What the server computed, two Python processes find.
        for _ in range(2):
            done = run_python(READER, tmp_path, namespace, photograph)
            assert done.stdout.split() == [item["key"], "global", digest], done.stderr

        # What Python published, the server finds.
        cache = embercache.open("file", {"dir": str(tmp_path)}, namespace=bytes.fromhex(namespace),
                                hidden=HIDDEN, max_pool_bytes=16 << 20)
        array = np.random.default_rng(1).random((TOKENS, HIDDEN), np.float32)
        key = cache.media_key(other.read_bytes())
        cache.get_or_compute(key, lambda: array).release()
        cache.close(PATIENT_S)
        answer = server.encode(ec_server.image_item(other.read_bytes()), accept="*/*")
        [item], tensors = ec_server.read_safetensors(answer.body)
        assert (item["source"], item["key"]) == ("global", key.hex)
        assert bytes(tensors["item_0"]) == array.tobytes()


def _namespace(stats):
    """The one namespace digest in the server's statistics, wherever it is."""
    [namespace] = re.findall(r'"namespace": "([0-9a-f]{64})"', json.dumps(stats))
    return namespace
