"""Nodes, each a server on a machine of its own, and traffic that looks at every answer."""
import collections
import http.client
import json
import random
import threading
import time

import ec_server
from conftest import PROGRAM, settle
from network import Network

REQUEST_TIMEOUT_S = 60
# Far less than work takes that /health might wait for, far more than a busy machine makes of it.
HEALTH_S = 5
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

    def end(self, index):
        """As an operator does it: what runs is finished."""
        node = self.nodes[index]
        self.nodes[index] = None
        assert node.stop() == 0, node.log_text()
        node.__exit__()
        return node.name

    def revive(self, index, name):
        self.nodes[index] = Node(name, self._model, self.backend)

    def metric(self, name, **labels):
        return sum(node.metric(name, **labels) for node in self.nodes)

    def ask(self, node, image):
        """Where the answer came from; it has to be right, and in time."""
        answer = self._answer(node, [image])
        assert answer.status == 200, f"{node.name}: {answer.status} {answer.body[:300]}"
        [source] = self._sources(node, [image], answer)
        return source

    def ask_for_all(self, node, images):
        """The same for each of them; `refused` for what the node has no time for now."""
        answer = self._answer(node, images)
        assert answer.status in (200, 503), f"{node.name}: {answer.status} {answer.body[:300]}"
        if answer.status == 200:
            return self._sources(node, images, answer)
        assert int(answer.headers["Retry-After"]) > 0
        return ["refused"] * len(answer.json().get("items", []))

    @staticmethod
    def _answer(node, images):
        begun = time.monotonic()
        answer = node.encode(*map(ec_server.image_item, images), accept="*/*")
        took_s = time.monotonic() - begun
        assert took_s <= REQUEST_TIMEOUT_S * 1.1, f"{node.name} took {took_s:.1f} s"
        return answer

    def _sources(self, node, images, answer):
        items, tensors = ec_server.read_safetensors(answer.body)
        for number, (image, item) in enumerate(zip(images, items, strict=True)):
            if "error" in item:
                assert item["error"]["code"] == "RESOURCE_EXHAUSTED", f"{node.name}: {item}"
            else:
                right = tensors[f"item_{number}"] == self.embeddings[image]
                assert right, f"{node.name}: wrong bytes, {item['source']}"
        return [item.get("source", "refused") for item in items]

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
        self._images = list(cluster.embeddings)
        self._sources = [[] for _ in cluster.nodes]
        self._threads = []
        for index in range(len(cluster.nodes)):
            self._start(index, lambda node, chance, index=index: self._ask(index, node, chance))

    def _start(self, index, act):
        """A thread that acts on that node again and again, while there is one."""
        self._threads.append(threading.Thread(target=self._run, args=[index, act, random.Random(len(self._threads))]))

    def _run(self, index, act, chance):
        while not self._ended and not self._problems:
            node = self._cluster.nodes[index]
            if node is None:
                time.sleep(0.01)
                continue
            try:
                act(node, chance)
            except Exception as problem:
                if self._cluster.nodes[index] is node:
                    self._problems.append(problem)

    def _ask(self, index, node, chance):
        self._sources[index].append(self._cluster.ask(node, chance.choice(self._images)))

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


class Load(Traffic):
    """Several clients at a time for each node, with several images a request, and one that asks whether
    it is alive. When the block ends, each node that was there all the time has counted what was asked,
    and no object was found bad."""

    CLIENTS = 4
    ITEMS = 3

    def __init__(self, cluster):
        super().__init__(cluster)
        self._threads = []
        self._asked = []  # a node for each answer; appending is atomic, counting were not
        for index in range(len(cluster.nodes)):
            for _ in range(self.CLIENTS):
                self._start(index, lambda node, chance, index=index: self._ask(index, node, chance))
            self._start(index, lambda node, chance: self._ask_for_health(node))

    def _ask(self, index, node, chance):
        sources = self._cluster.ask_for_all(node, chance.sample(self._images, self.ITEMS))
        self._sources[index] += sources
        self._asked.append(node)

    @staticmethod
    def _ask_for_health(node):
        begun = time.monotonic()
        assert node.request("GET", "/health").status == 200
        took_s = time.monotonic() - begun
        assert took_s < HEALTH_S, f"{node.name}: /health took {took_s:.1f} s"
        time.sleep(0.05)

    def __enter__(self):
        self._before = [(node, node.metrics()) for node in self._cluster.nodes]
        return super().__enter__()

    def __exit__(self, *exception):
        super().__exit__(*exception)
        for index, (node, before) in enumerate(self._before):
            if self._cluster.nodes[index] is node:
                settle(node)
                self._check_counters(node, before, collections.Counter(self._sources[index]))

    def _check_counters(self, node, before, sources):
        after = node.metrics()

        def counted(name, *labels):
            return sum(
                after[sample] - before.get(sample, 0)
                for sample in after
                if sample.split("{")[0] == name and all(label in sample for label in labels)
            )

        assert counted("embercache_requests_total", 'route="/v1/encode"') == self._asked.count(node), node.name
        assert counted("embercache_corruptions_total") == 0, node.name
        assert counted("embercache_item_errors_total") == sources.pop("refused", 0), node.name
        for source in "computed", "local", "global", "joined":
            assert counted("embercache_items_total", f'source="{source}"') == sources[source], f"{node.name}: {source}"
