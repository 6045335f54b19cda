"""Keys are those of every other EmberCache program."""
import hashlib

import pytest
from conftest import ROOT
from hypothesis import given
from hypothesis import strategies as st

import embercache
from embercache import errors

GOLDEN = [line.split() for line in (ROOT / "tests/golden/keys.txt").read_text().splitlines()
          if line and not line.startswith("#")]


def golden_namespace(tenant):
    return embercache.namespace_digest(
        "model", weights_sha256=hashlib.sha256(b"weights").hexdigest(),
        preprocess_fingerprint="resize=448", dtype="F32", tenant=tenant)


@pytest.mark.parametrize("kind, tenant, content, options, text", GOLDEN)
def test_golden_inputs_give_the_keys_of_the_core(open_cache, kind, tenant, content, options, text):
    cache = open_cache(namespace=golden_namespace(tenant), max_pool_bytes=0)
    key = (cache.key(content) if kind == "caller"
           else cache.media_key(content.encode(), kind, options))
    assert key.text == text
    assert len(GOLDEN) == 20


@given(st.text(), st.text())
def test_two_hashes_give_one_key_only_when_they_are_one(a, b):
    cache = _cache()
    assert (cache.key(a) == cache.key(b)) == (a == b)
    assert embercache.Key(cache.key(a).hex) == cache.key(a)
    assert hash(embercache.Key(cache.key(a).hex)) == hash(cache.key(a))


_open = []


def _cache():
    if not _open:
        _open.append(embercache.open(namespace="n", hidden=8, max_pool_bytes=0))
    return _open[0]


def test_keys_are_right_whatever_was_asked_for_before(open_cache):
    asked, fresh = open_cache(max_pool_bytes=0), open_cache(max_pool_bytes=0)
    hashes = [str(number * 7919) for number in range(100_000)]
    keys = [asked.key(mm_hash) for mm_hash in hashes]
    assert len(set(keys)) == len(hashes)
    assert [asked.key(mm_hash) for mm_hash in hashes] == keys
    assert [fresh.key(mm_hash) for mm_hash in reversed(hashes[:1000])] == keys[999::-1]
    for text in ("", "ä" * 35, "x" * 71, "x" * 72):
        assert asked.key(text) == asked.key(text) == fresh.key(text)


def test_keys_compare_with_anything_and_refuse_what_is_no_key(open_cache):
    key = open_cache().key("h")
    assert key != "h" and key != None  # noqa: E711
    assert bytes(key).hex() == key.hex == key.text.removeprefix("emb_")
    with pytest.raises(errors.InvalidError, match="64 hexadecimal"):
        embercache.Key("abc")
    with pytest.raises(TypeError):
        open_cache().get_many([3])
