"""Starts `embercache serve` and talks to it, with the standard library alone. For scripts/demo,
scripts/bench and tests/integration."""
import base64
import contextlib
import dataclasses
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build/release/bin/embercache"
# Long, since machines that run tests are busy; nothing waits so long where all is well.
START_SECONDS = 120


@dataclasses.dataclass
class Answer:
    status: int
    headers: dict
    body: bytes

    def json(self):
        return json.loads(self.body)


def image_item(content, **fields):
    return {"type": "image", "data": base64.b64encode(content).decode(), **fields}


def read_safetensors(body):
    """The array under `items`, and the bytes of each tensor by its name."""
    size = int.from_bytes(body[:8], "little")
    header = json.loads(body[8 : 8 + size])
    items = json.loads(header.pop("__metadata__")["items"])
    data = memoryview(body)[8 + size :]
    tensors = {name: bytes(data[slice(*t["data_offsets"])]) for name, t in header.items()}
    return items, tensors


class Server:
    """A running server; its log is in `log`. Ends with the `with` block. `prefix`: what starts the
    program, and becomes it."""

    def __init__(self, *flags, program=PROGRAM, prefix=(), env=None, wait_ready=True):
        self.log = tempfile.NamedTemporaryFile("w+", prefix="embercache-", suffix=".log")
        self.process = subprocess.Popen(
            [*prefix, program, "serve", "--port", "0", *map(str, flags)],
            stdout=subprocess.PIPE,
            stderr=self.log,
            stdin=subprocess.DEVNULL,
            env=env,
            text=True,
        )
        try:
            self._read_address()
            if wait_ready:
                self.wait_ready()
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise

    def _read_address(self):
        line = self.process.stdout.readline()
        found = re.search(r"http://\S+", line)
        if not found:
            self.process.wait(START_SECONDS)
            raise RuntimeError(f"the server did not start: {self.log_text()}")
        self.url = found.group()
        address = urllib.parse.urlsplit(self.url)
        self.host, self.port = address.hostname, address.port

    def wait_ready(self):
        deadline = time.monotonic() + START_SECONDS
        while self.request("GET", "/ready").status != 200:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server did not become ready: {self.log_text()}")
            time.sleep(0.02)

    def log_text(self):
        return pathlib.Path(self.log.name).read_text()

    def connect(self, timeout=START_SECONDS):
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def request(self, method, path, body=None, headers=None):
        connection = self.connect()
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return Answer(response.status, dict(response.headers), response.read())
        finally:
            connection.close()

    def encode(self, *items, accept="application/json", headers=None, **fields):
        body = json.dumps({"items": list(items), **fields})
        return self.request(
            "POST", "/v1/encode", body, {"Accept": accept, "Content-Type": "application/json"} | (headers or {})
        )

    def metrics(self):
        """Values by sample, written as in the exposition: name{label="value",…}."""
        samples = {}
        for line in self.request("GET", "/metrics").body.decode().splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                samples[name] = float(value)
        return samples

    def metric(self, name, **labels):
        """The sum over all samples of that name that have these labels."""
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        return sum(
            value
            for sample, value in self.metrics().items()
            if sample.split("{")[0] == name and all(label in sample for label in wanted)
        )

    def wait_metric(self, at_least, name, **labels):
        deadline = time.monotonic() + START_SECONDS
        while (value := self.metric(name, **labels)) < at_least:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{name} {labels} is {value}, expected {at_least}")
            time.sleep(0.02)
        return value

    def rss_bytes(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status).group(1)) * 1024

    def cpu_seconds(self):
        return cpu_seconds(self.process.pid)

    def open_files(self):
        return len(list(self._descriptors()))

    def open_file_names(self):
        names = []
        for descriptor in self._descriptors():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                names.append(os.readlink(descriptor))
        return names

    def _descriptors(self):
        return pathlib.Path(f"/proc/{self.process.pid}/fd").iterdir()

    def stop(self, sig=signal.SIGTERM):
        """Its exit code."""
        self.process.send_signal(sig)
        return self.wait()

    def wait(self):
        """Its exit code, once it ends."""
        return self.process.wait(START_SECONDS)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.wait()
        self.process.stdout.close()
        self.log.close()


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def folder_of(script, *arguments):
    """The folder that a script such as scripts/demo-model prints as its last line."""
    done = subprocess.run([ROOT / "scripts" / script, *arguments], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"scripts/{script} failed")
    return pathlib.Path(done.stdout.strip().splitlines()[-1])
