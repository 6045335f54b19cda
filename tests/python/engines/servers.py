"""SGLang's real servers on a CPU, and what talks to them. Everything is on loopback, and ends with its
`with` block."""
import base64
import contextlib
import hashlib
import io
import json
import os
import pathlib
import pickle
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import uuid

import numpy
import zmq
from PIL import Image

HERE = pathlib.Path(__file__).resolve().parent
# A server starts in half a minute on an idle machine.
START_S = 900
ANSWER_S = 600
CHECK_LINE = re.compile(r"Multi-Level Cache Check === Total: (\d+) \| Local Hits: (\d+) \| "
                        r"Global Hits: (\d+) \| Misses \(GPU Work\): (\d+)")


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def wait_until(condition, seconds, what):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


class Process:
    """A program in a process group of its own, with its output in a file."""

    def __init__(self, command, log, env=None):
        self.log = pathlib.Path(log)
        self._file = open(self.log, "wb")
        self.process = subprocess.Popen([str(word) for word in command], stdout=self._file,
                                        stderr=subprocess.STDOUT, start_new_session=True,
                                        env={**os.environ, **(env or {})})

    def output(self):
        return self.log.read_text(errors="replace")

    def check(self):
        tail = "\n".join(self.output().splitlines()[-30:])
        assert self.process.poll() is None, f"{self.log.name} ended:\n{tail}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, 15)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            pass
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, 9)
        self.process.wait()
        self._file.close()


class Server(Process):
    """One of SGLang's servers; ready once `ready` returned."""

    def __init__(self, folder, name, model, *flags, port=None, env=None):
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        command = [sys.executable, HERE / "cpu_launch.py", "--model-path", model, "--device", "cpu",
                   "--host", "127.0.0.1", "--port", self.port, "--dtype", "bfloat16",
                   "--encoder-transfer-backend", "zmq_to_scheduler", *flags]
        quiet = {"HF_HUB_OFFLINE": "1", "SGLANG_HOST_IP": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo",
                  "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
        super().__init__(command, folder / f"{name}.log", {**quiet, **(env or {})})

    def ready(self):
        def healthy():
            self.check()
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=10):
                    return True
            except OSError:
                return False

        wait_until(healthy, START_S, f"{self.log.name}: no answer at /health")
        return self

    def checks(self):
        """(total, local, global, misses) of each look-up that the log tells of."""
        return [tuple(map(int, found)) for found in CHECK_LINE.findall(self.output())]

    def _post(self, path, body):
        request = urllib.request.Request(f"{self.url}{path}", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
            return answer.read()

    def generate(self, seeds):
        """Token ids that a language server gives for images."""
        image = "<|vision_start|><|image_pad|><|vision_end|>"
        text = (f"<|im_start|>user\n{image * len(seeds)}describe the image<|im_end|>\n"
                "<|im_start|>assistant\n")
        answer = self._post("/generate", {
            "text": text, "image_data": [picture(seed) for seed in seeds],
            "sampling_params": {"max_new_tokens": 8, "temperature": 0}})
        return json.loads(answer)["output_ids"]

    def encode(self, seeds):
        """SHA-256 of the embedding that an encode server sends to a scheduler, which this plays."""
        part = f"{uuid.uuid4().hex}_local_part_0"
        context = zmq.Context()
        receiver = context.socket(zmq.PULL)
        port = receiver.bind_to_random_port("tcp://127.0.0.1")
        asked = threading.Thread(target=self._post, args=("/encode", {
            "req_id": part, "mm_items": [picture(seed) for seed in seeds], "modality": "IMAGE",
            "num_parts": 1, "part_idx": 0, "prefill_host": "127.0.0.1", "embedding_port": None}))
        asked.start()
        try:
            self._post("/scheduler_receive_url", {
                "req_id": part, "receive_count": 1, "receive_url": f"127.0.0.1:{port}",
                "modality": "IMAGE"})
            assert receiver.poll(ANSWER_S * 1000), f"{self.log.name}: nothing came"
            head, rows = receiver.recv_multipart()
            data = pickle.loads(head)
            assert not data.error_msg, data.error_msg
            return hashlib.sha256(rows).hexdigest()
        finally:
            asked.join()
            context.destroy(linger=0)


def encoder(folder, name, model, backend, env, *flags, port=None):
    """An encode server with our controller in the place of SGLang's."""
    return Server(folder, name, model, "--encoder-only", "--enable-mm-global-cache",
                  "--mm-global-cache-backend", backend, *flags, port=port,
                  env={"EMBERCACHE_SGLANG": "1", "EMBERCACHE_LOOKUP_TIMEOUT_MS": "60000", **env})


def picture(seed, size=224):
    noise = numpy.random.default_rng(seed).integers(0, 255, (size, size, 3), dtype=numpy.uint8)
    png = io.BytesIO()
    Image.fromarray(noise).save(png, "PNG")
    return "data:image/png;base64," + base64.b64encode(png.getvalue()).decode()
