"""Our controller in SGLang 0.5.23's real encode and language servers, on a CPU; by hand: make test-engines.

Two encode servers, A and B, share a store and serve one language server. What a server looked up, its log
tells: (total, local hits, global hits, misses)."""
import contextlib
import pathlib
import subprocess
import sys

import pytest
from servers import Server, encoder, free_port
from stores import STORES, file

PROMPTS = [[1], [2, 3], [1]]  # the pictures of each, by seed
PICTURES = 3
COMPUTED, LOCAL, GLOBAL = (1, 0, 0, 1), (1, 1, 0, 0), (1, 0, 1, 0)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("servers")


def make_model(path, seed):
    script = pathlib.Path(__file__).with_name("tiny_model.py")
    subprocess.run([sys.executable, "-B", script, path, str(seed)], check=True, capture_output=True)
    return path


@pytest.fixture(scope="session")
def model(folder):
    return make_model(folder / "model", 0)


@pytest.fixture(scope="session")
def undivided_tokens(folder, model):
    """Token ids of a server that does all by itself, without a cache."""
    with Server(folder, "undivided", model) as server:
        server.ready()
        return [server.generate(seeds) for seeds in PROMPTS]


@pytest.fixture(scope="session")
def ports():
    return free_port(), free_port()


@pytest.fixture(scope="session")
def language(folder, model, ports, undivided_tokens):
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    with Server(folder, "language", model, "--language-only", "--encoder-urls", *urls) as server:
        yield server


@contextlib.contextmanager
def two_nodes(folder, name, model, backend, store, *flags, ports=(None, None)):
    with contextlib.ExitStack() as stack:
        nodes = [stack.enter_context(encoder(folder, f"{name}-{letter}", model, backend, store.env,
                                             *flags, port=port))
                 for letter, port in zip("ab", ports)]
        yield [node.ready() for node in nodes]


def looked_up(node, seed):
    """The embedding's digest, and what the node's look-up found."""
    before = len(node.checks())
    digest = node.encode([seed])
    [check] = node.checks()[before:]
    return digest, check


@pytest.mark.parametrize("backend", STORES)
def test_two_encoders_and_a_language_server_give_the_undivided_servers_tokens(
        folder, model, ports, language, undivided_tokens, backend):
    with STORES[backend](folder) as store, two_nodes(
            folder, backend, model, backend, store, ports=ports) as (a, b):
        language.ready()
        assert [language.generate(seeds) for seeds in PROMPTS] == undivided_tokens
        store.wait_for(PICTURES)
        digest, check = looked_up(a, 11)
        assert check == COMPUTED
        store.wait_for(PICTURES + 1)
        assert looked_up(b, 11) == (digest, GLOBAL)
        assert looked_up(b, 11) == (digest, LOCAL)


def test_two_tensor_parallel_nodes_share_embeddings(folder, model):
    with file(folder) as store, two_nodes(
            folder, "tp2", model, "file", store, "--tp-size", "2") as (a, b):
        digest, check = looked_up(a, 11)
        assert check == COMPUTED
        store.wait_for(1)
        assert looked_up(b, 11) == (digest, GLOBAL)


def test_what_is_damaged_at_rest_is_computed_and_another_models_is_never_served(folder, model):
    other_model = make_model(folder / "other", 1)
    with file(folder) as store, two_nodes(folder, "file2", model, "file", store) as (a, b):
        digest, _ = looked_up(a, 11)
        store.wait_for(1)
        with encoder(folder, "other", other_model, "file", store.env) as other:
            other_digest, check = looked_up(other.ready(), 11)
            assert check == COMPUTED and other_digest != digest
            store.wait_for(2)
        for path in pathlib.Path(store.config["dir"]).rglob("*.emb"):
            path.write_bytes(bytes(path.stat().st_size))
        assert looked_up(b, 11) == (digest, GLOBAL)  # asked of the store, and not believed
        assert "falling back to ViT" in b.output()
