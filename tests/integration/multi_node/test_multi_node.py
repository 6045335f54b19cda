"""Three servers on one store, and what befalls the store, the network and the servers. Under
whatever does, no answer has a wrong byte, no request fails or takes longer than its deadline, and
hits return by themselves."""
import contextlib
import os

import ec_server
import pytest
from backends import BACKENDS
from cluster import Cluster, Load, Traffic
from conftest import picture
from network import Network

NODES = ["node-1", "node-2", "node-3"]
IMAGES = 32


@pytest.fixture(scope="session")
def network():
    if os.getpid() != 1:
        pytest.exit("multi_node: start these tests by tests/integration/multi_node/run", 1)
    return Network(*NODES, "store")


@pytest.fixture(scope="session")
def embeddings(start):
    """What a server without any cache computes."""
    images = [picture(f"multi-node-{i}") for i in range(IMAGES)]
    computed = {}
    with start("--mm-global-cache-size-gb", "0", "--request-timeout-ms", "120000") as server:
        for image in images:
            answer = server.encode(ec_server.image_item(image), accept="*/*")
            computed[image] = ec_server.read_safetensors(answer.body)[1]["item_0"]
    return computed


@pytest.fixture(scope="module", params=BACKENDS)
def cluster(request, network, model, embeddings, tmp_path_factory):
    with contextlib.ExitStack() as stack:
        backend = BACKENDS[request.param](network, tmp_path_factory.mktemp(request.param))
        stack.callback(backend.close)
        running = Cluster(NODES, model, backend, embeddings)
        stack.callback(running.close)
        yield running


@pytest.fixture
def traffic(cluster):
    """Nodes that are at work, with hits. They also are when the test is over."""
    with Traffic(cluster) as running:
        running.wait_hits()
        yield running
        running.wait_hits()


@contextlib.contextmanager
def nothing_corrupt(cluster):
    """A store in trouble loses or refuses objects; it has no bad ones."""
    before = cluster.metric("embercache_corruptions_total")
    yield
    assert cluster.metric("embercache_corruptions_total") == before


def test_each_published_image_is_a_global_hit_on_the_others_with_equal_bytes(cluster):
    for number, image in enumerate(cluster.embeddings):
        node = cluster.nodes[number % len(NODES)]
        result = cluster.backend.put_result
        before = node.metric("embercache_published_total", result=result)
        assert cluster.ask(node, image) == "computed"
        node.wait_metric(before + 1, "embercache_published_total", result=result)
    cluster.wait_for_all_hits()


def test_a_node_that_is_killed_at_work_costs_the_others_nothing(cluster, traffic):
    name = cluster.kill(1)
    traffic.wait_hits()
    cluster.revive(1, name)
    traffic.wait_hits()


def test_a_node_that_is_cut_off_serves_and_hits_again_once_it_is_back(cluster, traffic):
    node = cluster.nodes[2]
    with nothing_corrupt(cluster):
        cluster.backend.cut(node)
        traffic.wait_answers(12)
        cluster.backend.join(node)
        traffic.wait_hits()


@pytest.mark.parametrize(
    "begin, end",
    [("pause", "resume"), ("stop", "start"), ("slow", "hurry"), ("fill", "drain")],
    ids=["paused", "gone", "slow", "full"],
)
def test_a_store_in_trouble_stops_no_node_and_hits_return(cluster, traffic, begin, end):
    with nothing_corrupt(cluster):
        getattr(cluster.backend, begin)()
        traffic.wait_answers(12)
        getattr(cluster.backend, end)()
        traffic.wait_hits()


def test_a_store_that_is_emptied_fills_again(cluster):
    with Traffic(cluster) as traffic, nothing_corrupt(cluster):
        traffic.wait_hits()
        cluster.backend.empty()
        traffic.wait_hits()
    cluster.wait_for_all_hits()


def test_objects_that_go_bad_at_rest_are_never_served_and_are_replaced(cluster):
    cluster.wait_for_all_hits()
    before = cluster.metric("embercache_corruptions_total")
    with Traffic(cluster) as traffic:
        assert cluster.backend.corrupt() == IMAGES
        traffic.wait_answers(12)
    assert cluster.metric("embercache_corruptions_total") > before
    cluster.wait_for_all_hits()


# To a node, Valkey is Redis.
under_load = pytest.mark.parametrize("cluster", [name for name in BACKENDS if name != "valkey"], indirect=True)


@under_load
@pytest.mark.parametrize("begin, end", [("pause", "resume"), ("stop", "start")], ids=["paused", "gone"])
def test_a_store_in_trouble_under_load_costs_no_answer_and_everything_is_counted(cluster, begin, end):
    with Load(cluster) as load:
        load.wait_hits()
        getattr(cluster.backend, begin)()
        load.wait_answers(30)
        getattr(cluster.backend, end)()
        load.wait_hits()


@under_load
def test_a_node_that_is_restarted_under_load_finds_its_hits_and_the_others_notice_nothing(cluster):
    with Load(cluster) as load:
        load.wait_hits()
        cluster.revive(1, cluster.end(1))
        load.wait_hits()
