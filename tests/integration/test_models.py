"""Several models of one server, and which of a model's outputs is the embedding."""
import json
import shutil

import ec_server
import onnx
import pytest
from conftest import global_cache, picture
from test_lifecycle import start_failure


def copy_of(model, folder, **preprocessor):
    """The model again, with other settings of its preprocessor."""
    folder.mkdir()
    shutil.copy(model / "model.onnx", folder)
    settings = json.loads((model / "preprocessor_config.json").read_text())
    (folder / "preprocessor_config.json").write_text(json.dumps(settings | preprocessor))
    return folder


def with_two_outputs(model, folder):
    """The model with its embedding as `last_hidden_state` and, as `doubled`, twice that."""
    copy_of(model, folder)
    graph = onnx.load(folder / "model.onnx")
    [output] = graph.graph.output
    for name, operator, inputs in (
        ("last_hidden_state", "Identity", [output.name]),
        ("doubled", "Add", [output.name, output.name]),
    ):
        graph.graph.node.append(onnx.helper.make_node(operator, inputs, [name]))
        port = graph.graph.output.add()
        port.CopyFrom(output)
        port.name = name
    graph.graph.output.remove(output)
    onnx.save(graph, folder / "model.onnx")
    return folder


def encode(server, content, **fields):
    answer = server.encode(ec_server.image_item(content), accept="*/*", **fields)
    assert answer.status == 200, answer.body
    [item], tensors = ec_server.read_safetensors(answer.body)
    return item, tensors["item_0"]


@pytest.fixture(scope="module")
def second(model, tmp_path_factory):
    return copy_of(model, tmp_path_factory.mktemp("models") / "second", image_mean=[0.1, 0.2, 0.3])


@pytest.fixture(scope="module")
def server(start, second, tmp_path_factory):
    flags = global_cache(tmp_path_factory.mktemp("store"))
    with start("--model", f"other={second}", *flags) as running:
        yield running


def test_each_model_has_a_namespace_and_embeddings_of_its_own(server):
    content = picture("two models")
    first, first_bytes = encode(server, content, model="det16")
    other, other_bytes = encode(server, content, model="other")
    assert first["source"] == other["source"] == "computed"
    assert first["key"] != other["key"]
    assert first_bytes != other_bytes
    assert encode(server, content, model="other")[0]["source"] == "local"
    models = server.request("GET", "/v1/stats").json()["models"]
    assert [model["name"] for model in models] == ["det16", "other"]
    assert len({model["namespace"] for model in models}) == 2
    for model in models:
        assert server.metric("embercache_info", model=model["name"], namespace=model["namespace"]) == 1


def test_the_cache_route_finds_the_embeddings_of_every_model(server):
    content = picture("by key")
    for model in ("det16", "other"):
        item, tensor = encode(server, content, model=model)
        answer = server.request("GET", f"/v1/cache/{item['key']}")
        assert ec_server.read_safetensors(answer.body)[1]["item_0"] == tensor


def test_a_request_has_to_name_one_of_several_models(server):
    answer = server.encode(ec_server.image_item(picture("nobody")))
    assert answer.status == 400
    assert "det16, other" in answer.json()["error"]["message"]


def test_an_unknown_model_is_named_with_those_there_are(server):
    answer = server.encode(ec_server.image_item(picture("unknown")), model="clip")
    assert answer.status == 400
    for part in ("'clip'", "det16, other"):
        assert part in answer.json()["error"]["message"]


def test_models_that_were_the_same_all_along_share_nothing_but_the_pool(server):
    stats = server.request("GET", "/v1/stats").json()
    assert [pool["name"] for pool in stats["pools"]] == ["vision/768", "uncached"]


def test_the_output_is_chosen_in_embercache_toml(start, model, tmp_path):
    folder = with_two_outputs(model, tmp_path / "two")
    content = picture("outputs")
    with start("--model", f"two={folder}") as server:
        chosen, rows = encode(server, content, model="two")
    (folder / "embercache.toml").write_text('output = "doubled"\n')
    with start("--model", f"two={folder}") as server:
        other, doubled = encode(server, content, model="two")
    assert chosen["key"] != other["key"]
    as_floats = [memoryview(tensor).cast("f") for tensor in (rows, doubled)]
    assert all(b == a + a for a, b in zip(*as_floats))


def test_an_output_that_is_not_there_stops_the_start_and_lists_those_there_are(model, tmp_path):
    folder = with_two_outputs(model, tmp_path / "two")
    (folder / "embercache.toml").write_text('output = "pooled"\n')
    message = start_failure("--model", folder)
    assert "pooled" in message and "last_hidden_state, doubled" in message
