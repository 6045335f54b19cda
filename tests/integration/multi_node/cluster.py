"""Nodes, each a server on a machine of its own, and traffic that looks at every answer."""
import http.client
import json
import random
import threading
import time

import ec_server
from conftest import PROGRAM
from network import Network

REQUEST_TIMEOUT_S = 30
# Longer than anything takes where all is well; nothing waits so long then.
PATIENCE_S = 300
# Fits 15 of the images, so that nodes ask the store for most of what they are asked.
POOL_GB = 0.012


class _Connection(http.client.HTTPConnection):
    """Made on the machine that the server runs on, and so never cut."""

    def __init__(self, machine, *arguments, **named):
        super().__init__(*arguments, **named)
        self._machine = machine

    def connect(self):
        with Network.inside(self._machine):
            super().connect()


class Node(ec_server.Server):
    def __init__(self, name, model, backend):
        self.name = name
        super().__init__(
            *("--model", model, "--mm-global-cache-size-gb", POOL_GB, "--enable-mm-global-cache"),
            *("--mm-global-cache-backend", backend.backend),
            *("--mm-global-cache-config", json.dumps(backend.config())),
            *("--request-timeout-ms", REQUEST_TIMEOUT_S * 1000),
            program=PROGRAM,
            prefix=Network.prefix(name),
        )

    def connect(self, timeout=PATIENCE_S):
        return _Connection(self.name, self.host, self.port, timeout=timeout)


class Cluster:
    """Three nodes on one store. `embeddings`: what each image has to give, by its bytes."""

    def __init__(self, names, model, backend, embeddings):
        self.backend = backend
        self.embeddings = embeddings
        self._model = model
        self.nodes = [Node(name, model, backend) for name in names]

    def close(self):
        for node in self.nodes:
            if node is not None:
                node.__exit__()

    def kill(self, index):
        node = self.nodes[index]
        self.nodes[index] = None  # so that traffic expects its connections to break
        node.process.kill()
        node.__exit__()
        return node.name

    def revive(self, index, name):
        self.nodes[index] = Node(name, self._model, self.backend)

    def metric(self, name, **labels):
        return sum(node.metric(name, **labels) for node in self.nodes)

    def ask(self, node, image):
        """Where the answer came from; it has to be right, and in time."""
        begun = time.monotonic()
        answer = node.encode(ec_server.image_item(image), accept="*/*")
        took_s = time.monotonic() - begun
        assert answer.status == 200, f"{node.name}: {answer.status} {answer.body[:300]}"
        assert took_s <= REQUEST_TIMEOUT_S * 1.1, f"{node.name} took {took_s:.1f} s"
        [item], tensors = ec_server.read_safetensors(answer.body)
        assert tensors["item_0"] == self.embeddings[image], f"{node.name}: wrong bytes, {item['source']}"
        return item["source"]

    def wait_for_all_hits(self):
        """Until every node has got every image from the store. The images are more than a node can
        hold, so that in this order it asks the store for each of them."""
        deadline = time.monotonic() + PATIENCE_S
        missing = {(node, image) for node in self.nodes for image in self.embeddings}
        while missing:
            for node in self.nodes:
                for image in self.embeddings:
                    if self.ask(node, image) == "global":
                        missing.discard((node, image))
            assert time.monotonic() < deadline, f"{len(missing)} of the hits do not return"


class Traffic:
    """Asks each node for images, one after the other, as long as the `with` block lasts."""

    def __init__(self, cluster):
        self._cluster = cluster
        self._ended = False
        self._problems = []
        self._sources = [[] for _ in cluster.nodes]
        self._threads = [threading.Thread(target=self._ask, args=[i]) for i in range(len(cluster.nodes))]

    def _ask(self, index):
        images = list(self._cluster.embeddings)
        chance = random.Random(index)
        while not self._ended and not self._problems:
            node = self._cluster.nodes[index]
            if node is None:
                time.sleep(0.01)
                continue
            try:
                self._sources[index].append(self._cluster.ask(node, chance.choice(images)))
            except Exception as problem:
                if self._cluster.nodes[index] is node:
                    self._problems.append(problem)

    def _wait(self, what, enough):
        deadline = time.monotonic() + PATIENCE_S
        begun = [len(sources) for sources in self._sources]
        while not all(
            self._cluster.nodes[i] is None or enough(sources[begun[i] :]) for i, sources in enumerate(self._sources)
        ):
            if self._problems:
                raise self._problems[0]
            assert time.monotonic() < deadline, f"no {what} within {PATIENCE_S} s"
            time.sleep(0.005)

    def wait_answers(self, count=6):
        """Until each node has given so many more answers."""
        self._wait("answers", lambda sources: len(sources) >= count)

    def wait_hits(self, count=6):
        """Until each node has got so many more from the store."""
        self._wait("hits", lambda sources: sources.count("global") >= count)

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._ended = True
        for thread in self._threads:
            thread.join()
        if self._problems:
            raise self._problems[0]
