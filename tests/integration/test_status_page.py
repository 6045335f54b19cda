"""The page at / and the description at /openapi.json. scripts/check-status-page looks at the page in a
browser."""
import re

import ec_server
import pytest
from conftest import picture


@pytest.fixture(scope="module")
def server(start):
    with start() as running:
        yield running


def test_the_page_is_one_document_without_outside_resources(server):
    answer = server.request("GET", "/")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    page = answer.body.decode()
    assert page.startswith("<!doctype html>") and page.rstrip().endswith("</html>")
    addresses = re.findall(r"(?:src|href|url)\s*[=(]\s*[\"']?([^\"')\s>]+)", page)
    assert all(address.startswith("data:") for address in addresses), addresses
    assert set(re.findall(r"https?://[^\"'\s]+", page)) == {"http://www.w3.org/2000/svg"}


def test_all_that_the_page_reads_is_there(server):
    server.encode(ec_server.image_item(picture("page")), ec_server.image_item(b"bad"))
    stats = server.request("GET", "/v1/stats").json()
    assert {"version", "uptime_s", "configuration", "models", "items_admitted", "pools", "store", "lanes"} <= stats.keys()
    assert stats["recent_errors"][0]["code"] == "INVALID"
    assert "queue_items" in stats["configuration"]
    assert {"ready", "filling", "quarantined", "free", "total"} == stats["pools"][0]["pages"].keys()
    page = server.request("GET", "/").body.decode()
    families = {sample.split("{")[0] for sample in server.metrics()}
    known_only_with_a_store = {"embercache_published_total", "embercache_corruptions_total"}
    for name in set(re.findall(r"embercache_\w+", page)) - known_only_with_a_store:
        assert name in families, name


def test_the_page_and_the_description_are_there_while_models_load(start):
    with start(wait_ready=False) as server:
        assert server.request("GET", "/").status == 200
        assert server.request("GET", "/openapi.json").status == 200


def references(node):
    if isinstance(node, dict):
        yield from ([node["$ref"]] if "$ref" in node else [])
        node = list(node.values())
    if isinstance(node, list):
        for child in node:
            yield from references(child)


def test_the_description_is_consistent_and_names_every_route(server):
    description = server.request("GET", "/openapi.json").json()
    assert description["openapi"] == "3.1.0"
    for reference in references(description):
        node = description
        for part in reference.removeprefix("#/").split("/"):
            node = node[part]
    described = {(path, method) for path, item in description["paths"].items() for method in item if method != "parameters"}
    for path in ("/v1/encode", "/v1/cache/{key}", "/v1/stats", "/health", "/ready", "/metrics", "/", "/openapi.json"):
        allowed = server.request("OPTIONS", path.replace("{key}", "0" * 64)).headers["Allow"].lower().split(", ")
        methods = {method for described_path, method in described if described_path == path}
        assert methods <= set(allowed)
        assert set(allowed) - methods <= {"head", "options"}


def check(value, schema, description, where):
    """Enough of JSON Schema for what the description says."""
    if "$ref" in schema:
        schema = description["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float)}
    if "type" in schema:
        assert isinstance(value, kinds[schema["type"]]), where
    if "enum" in schema:
        assert value in schema["enum"], where
    if "pattern" in schema:
        assert re.search(schema["pattern"], value), where
    if isinstance(value, dict):
        assert set(schema.get("required", ())) <= value.keys(), where
        for name, field in value.items():
            if "properties" in schema:
                assert name in schema["properties"], f"{where}.{name}"
                check(field, schema["properties"][name], description, f"{where}.{name}")
    if isinstance(value, list) and "items" in schema:
        for i, field in enumerate(value):
            check(field, schema["items"], description, f"{where}[{i}]")


def test_answers_are_as_described(server):
    description = server.request("GET", "/openapi.json").json()
    answer = server.encode(ec_server.image_item(picture("described")), ec_server.image_item(b"bad"))
    check(answer.json(), {"$ref": "#/components/schemas/Answer"}, description, "answer")
    failed = server.encode(ec_server.image_item(b"bad"))
    check(failed.json(), {"$ref": "#/components/schemas/Failure"}, description, "failure")
    for path in ("/health", "/ready"):
        check(server.request("GET", path).json(), {"$ref": "#/components/schemas/State"}, description, path)
