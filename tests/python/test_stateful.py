"""A cache over a store against a model of what it may answer, by random calls."""
import gc

import numpy as np
from conftest import HIDDEN, PATIENT_S
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import embercache

HASHES = st.sampled_from([f"h{i}" for i in range(12)])


def expected(mm_hash):
    """The one embedding that a hash stands for."""
    number = int(mm_hash[1:])
    tokens = 1 + 97 * number
    values = np.arange(tokens * HIDDEN, dtype=np.int64) * 5 + number * 17
    return (values % 2039).astype(np.float32).reshape(tokens, HIDDEN)


class TwoNodes(RuleBasedStateMachine):
    """Two caches on one store. Evictions and lost publications are allowed, other bytes never."""

    def __init__(self):
        super().__init__()
        embercache.set_log_level("error")
        self.store = embercache.open_store("memory")
        self.nodes = [
            embercache.open(self.store, namespace="n", hidden=HIDDEN, max_pool_bytes=3 << 20,
                            lookup_timeout_s=PATIENT_S)
            for _ in range(2)
        ]
        self.held = []  # (node, embedding, hash)
        self.computed = set()

    node = st.integers(0, 1)

    @rule(node=node, mm_hash=HASHES, publish=st.booleans())
    def compute(self, node, mm_hash, publish):
        calls = []

        def encode():
            calls.append(1)
            return expected(mm_hash)

        embedding = self.nodes[node].get_or_compute(mm_hash, encode, publish=publish)
        assert bool(calls) == (embedding.source == "computed")
        self.computed.add(mm_hash)
        self.held.append((node, embedding, mm_hash))

    @rule(node=node, hashes=st.lists(HASHES, max_size=5))
    def look_up(self, node, hashes):
        for mm_hash, embedding in zip(hashes, self.nodes[node].get_many(hashes), strict=True):
            if embedding is None:
                continue
            assert mm_hash in self.computed
            np.testing.assert_array_equal(embedding.numpy(), expected(mm_hash))

    @rule(node=node, hashes=st.lists(HASHES, max_size=5, unique=True))
    def prefetch(self, node, hashes):
        cache = self.nodes[node]
        cache.prefetch("r", hashes, [len(expected(h)) for h in hashes])
        assert cache.prefetch_state("r", PATIENT_S) == "done"
        for mm_hash, outcome in zip(hashes, cache.prefetch_outcomes("r"), strict=True):
            ready = outcome in ("local", "global", "joined")
            assert not ready or (mm_hash in self.computed and cache.has_local(mm_hash))
        assert cache.release_request("r")

    @rule(node=node, hashes=st.lists(HASHES, max_size=5, unique=True))
    def publish(self, node, hashes):
        local = [self.nodes[node].has_local(h) for h in hashes]
        new, existing, skipped = self.nodes[node].publish(hashes)
        assert (new + existing, skipped) == (sum(local), len(hashes) - sum(local))

    @rule(mm_hash=HASHES, node=node)
    def remove(self, mm_hash, node):
        assert self.nodes[node].remove(mm_hash, PATIENT_S) in ("removed", "absent")

    @rule(which=st.integers(0, 20))
    def release(self, which):
        if self.held:
            self.held.pop(which % len(self.held))[1].release()

    @invariant()
    def held_embeddings_do_not_change(self):
        for _, embedding, mm_hash in self.held[-3:]:
            np.testing.assert_array_equal(embedding.numpy(), expected(mm_hash))

    def teardown(self):
        self.held.clear()
        gc.collect()
        for cache in self.nodes:
            cache.close(PATIENT_S)
        self.store.close(PATIENT_S)


TwoNodes.TestCase.settings = settings(
    max_examples=25, stateful_step_count=25, deadline=None,
    suppress_health_check=list(HealthCheck))
TestTwoNodes = TwoNodes.TestCase
