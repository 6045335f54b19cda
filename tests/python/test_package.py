"""The package: what importing it needs, what it says of itself, and SGLang's ways to find it."""
import json
import os
import pathlib
import subprocess
import sys

import pytest
from conftest import ROOT, run_python

import embercache


def test_importing_it_needs_neither_torch_nor_sglang_nor_numpy():
    code = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "sglang", "numpy", "ml_dtypes"):
            raise AssertionError("imports " + name)
sys.meta_path.insert(0, Refuse())
import embercache, embercache.sglang
cache = embercache.open(namespace="n", hidden=8, max_pool_bytes=1 << 20)
print(cache.get("h"))
"""
    done = run_python(code)
    assert done.returncode == 0 and done.stdout == "None\n", done.stderr


def test_the_stub_is_that_of_the_module(tmp_path):
    stub = tmp_path / "_core.pyi"
    subprocess.run([sys.executable, "-m", "nanobind.stubgen", "-q", "-m", "embercache._core", "-o",
                    stub], check=True)
    golden = pathlib.Path(embercache.__file__).with_name("_core.pyi")
    assert stub.read_text() == golden.read_text(), "ninja -C build/release python_stub"
    assert golden.with_name("py.typed").exists()


def test_everything_public_says_what_it_does():
    from embercache import _core

    for owner in (_core.Cache, _core.Embedding, _core.Store, _core.ByteStore, _core.Copies):
        for name in vars(owner):
            if not name.startswith("_"):
                assert getattr(owner, name).__doc__, f"{owner.__name__}.{name}"



def run_program(*arguments, **environment):
    return subprocess.run([sys.executable, "-B", "-m", "embercache", *arguments], text=True,
                          capture_output=True, timeout=120, env={**os.environ, **environment})


def test_the_program_comes_with_the_package():
    done = run_program("--help")
    assert done.returncode == 0 and "serve" in done.stdout, done.stderr
    done = run_program("nosuch")
    assert done.returncode == 2 and "'nosuch'" in done.stderr


def test_the_program_uses_this_pythons_onnx_runtime_unless_another_is_named(monkeypatch):
    import embercache.__main__ as module

    started = []
    monkeypatch.setattr(os, "execv", lambda program, words: started.append(
        (words[1:], os.environ.get("ONNXRUNTIME_LIBRARY"))))
    monkeypatch.setattr(sys, "argv", ["embercache", "serve", "--port", "0"])
    monkeypatch.delenv("ONNXRUNTIME_ROOT", raising=False)
    monkeypatch.setenv("ONNXRUNTIME_LIBRARY", "/another.so")
    module.main()
    monkeypatch.setenv("ONNXRUNTIME_LIBRARY", "")
    module.main()
    [(words, another), (_, found)] = started
    assert words == ["serve", "--port", "0"] and another == "/another.so"
    assert pathlib.Path(found).name.startswith("libonnxruntime.so") and pathlib.Path(found).exists()


def run_pth(value):
    line = (ROOT / "python/embercache.pth").read_text()
    code = f"import sys\nbefore = set(sys.modules)\n{line}print(sorted(set(sys.modules) - before))"
    return run_python(code, env={"EMBERCACHE_SGLANG": value}).stdout.strip()


def test_the_pth_hook_imports_nothing_until_it_is_asked_to():
    assert run_pth("") == "[]"
    assert run_pth("0") == "[]"
    asked = run_pth("1")
    assert "_embercache_sglang" in asked and "'embercache'" not in asked


@pytest.fixture
def fake_sglang(tmp_path, monkeypatch):
    """Modules with the names and signatures of SGLang's, and nothing behind them."""

    def make(parameters="self, embedding_store, max_pool_size_gb=4.0, hidden_dims=None, "
             "all_rank_get=False, enable_eviction=True, max_eviction_batch=100, dtype=None",
             home="mem_cache"):
        package = tmp_path / "sglang/srt" / home
        package.mkdir(parents=True)
        (package / "embedding_cache_controller.py").write_text(f"""
class EmbeddingCacheController:
    def __init__({parameters}): pass
    def prefetch(self, req_id, mm_hashes, expected_tokens, modality=None): pass
    def check_prefetch_progress(self, req_id): pass
    def insert_batch(self, mm_hashes, modality=None): pass
    async def batch_is_exist(self, mm_hashes): pass
class PageRun: pass
""")
        mem_cache = tmp_path / "sglang/srt/mem_cache"
        (mem_cache / "embedding_store.py").write_text("""
import abc
class EmbeddingStore(abc.ABC):
    def register_buffer(self, tensor): pass
class EmbeddingStoreFactory:
    _registry = {"mooncake": {"module_path": "their.module", "class_name": "Theirs"}}
""")
        (tmp_path / "sglang/srt/server_args.py").write_text("""
class ServerArgs:
    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--mm-global-cache-backend", choices=["mooncake"], default="mooncake")
""")
        return {"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}

    return make


CHECK = """
import importlib, sys
home = sys.argv[1]
controller = importlib.import_module(f"sglang.srt.{home}.embedding_cache_controller")
from sglang.srt.mem_cache.embedding_store import EmbeddingStoreFactory, EmbeddingStore
from sglang.srt.server_args import ServerArgs
import argparse
parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
print(controller.EmbeddingCacheController.__module__, controller.PageRun.__module__)
print(parser.parse_args([]).mm_global_cache_backend,
      parser.parse_args(["--mm-global-cache-backend", "file"]).mm_global_cache_backend)
store = EmbeddingStoreFactory.create_backend("memory", namespace="n")
print(isinstance(store, EmbeddingStore), EmbeddingStoreFactory._registry["mooncake"].class_name)
"""
PATCHED = ["embercache.sglang.controller", "embercache.sglang.views", "mooncake", "file", "True"]


@pytest.mark.parametrize("home", ["mem_cache", "mem_cache/storage/mooncake_store"])
@pytest.mark.parametrize("when", ["before", "after", "pth"])
def test_install_puts_our_classes_in_sglangs_place(fake_sglang, home, when):
    environment = fake_sglang(home=home)
    name = home.replace("/", ".")
    imports = f"import sglang.srt.{name}.embedding_cache_controller, sglang.srt.server_args\n"
    install = "import embercache.sglang; embercache.sglang.install()\n"
    head = {"before": install, "after": imports + install,
            "pth": (ROOT / "python/embercache.pth").read_text()}[when]
    if when == "pth":
        environment["EMBERCACHE_SGLANG"] = "1"
    done = run_python(head + CHECK, name, env=environment)
    assert done.stdout.split()[:5] == PATCHED, done.stderr


OLDER_FORMS = {
    "ranks and eviction": "self, tp_rank, tp_size, embedding_store, max_pool_size_gb=4.0, "
    "hidden_dims=None, tp_group=None, all_rank_get=False, enable_eviction=True, "
    "max_eviction_batch=100, dtype=None",
    "ranks alone": "self, tp_rank, tp_size, embedding_store, max_pool_size_gb=4.0, "
    "hidden_dims=None, tp_group=None, all_rank_get=False",
}


@pytest.mark.parametrize("form", OLDER_FORMS)
def test_older_releases_that_give_ranks_are_known(fake_sglang, form):
    environment = fake_sglang(OLDER_FORMS[form])
    install = "import embercache.sglang; embercache.sglang.install()\n"
    done = run_python(install + CHECK, "mem_cache", env=environment)
    assert done.stdout.split()[:5] == PATCHED, done.stderr


def test_a_release_with_other_signatures_is_refused_and_left_as_it_is(fake_sglang):
    environment = fake_sglang("self, embedding_store, surprise")
    code = """
import sglang.srt.mem_cache.embedding_cache_controller as theirs
import embercache
from embercache.sglang import install
try:
    install()
except embercache.errors.UnimplementedError as error:
    print("__init__" in str(error), "surprise" in str(error))
print(theirs.EmbeddingCacheController.__module__)
"""
    done = run_python(code, env=environment)
    assert done.stdout.split() == ["True", "True", "sglang.srt.mem_cache.embedding_cache_controller"]
    quiet = run_python((ROOT / "python/embercache.pth").read_text() + CHECK, "mem_cache",
                       env={**environment, "EMBERCACHE_SGLANG": "1"})
    assert quiet.stdout.startswith("sglang.srt.mem_cache"), quiet.stderr
    assert "EmberCache is not used" in quiet.stderr and "surprise" in quiet.stderr


@pytest.mark.parametrize("argv, value, installs", [
    (["serve"], None, False), (["serve", "--mm-global-cache-backend", "file"], None, True),
    (["serve", "--mm-global-cache-backend=redis"], None, True),
    (["serve", "--mm-global-cache-backend", "mooncake"], None, False),
    (["serve", "--mm-global-cache-backend", "file"], "0", False), (["serve"], "1", True)])
def test_the_plugin_installs_by_the_variable_or_by_the_flag(monkeypatch, argv, value, installs):
    from embercache.sglang import install as module

    calls = []
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.setattr(sys.modules[module.__module__], "install", lambda: calls.append(1))
    monkeypatch.delenv("EMBERCACHE_SGLANG", raising=False)
    if value is not None:
        monkeypatch.setenv("EMBERCACHE_SGLANG", value)
    sys.modules[module.__module__].plugin()
    assert bool(calls) == installs


def test_namespaces_from_a_model_folder_change_with_what_changes_the_bytes(tmp_path):
    from embercache.sglang.namespace import digest_of_model

    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "preprocessor_config.json").write_text('{"size": 448}')
    (tmp_path / "model.safetensors").write_bytes(b"w" * 10)
    settings = dict(revision=None, dtype="bfloat16", tp_size=1)
    seen = {digest_of_model(tmp_path, **settings)}

    def adds_one(**changed):
        digest = digest_of_model(tmp_path, **{**settings, **changed})
        known = digest in seen
        seen.add(digest)
        return not known

    assert not adds_one()
    assert adds_one(revision="r2") and adds_one(dtype="float32") and adds_one(tp_size=2)
    for name, content in (("config.json", b"{ }"), ("preprocessor_config.json", b"{}"),
                          ("model.safetensors", b"w" * 11), ("model.safetensors.index.json", b"{}")):
        (tmp_path / name).write_bytes(content)
        assert adds_one(), name


def test_two_trainings_of_one_model_have_two_namespaces(tmp_path):
    """Equal files but for the values of one tensor in the middle."""
    from embercache.sglang.namespace import digest_of_model

    (tmp_path / "config.json").write_text("{}")
    header = {f"t{i}": {"dtype": "F32", "shape": [4096], "data_offsets": [i * 16384, (i + 1) * 16384]}
              for i in range(100)}
    text = json.dumps(header).encode()

    def digest_with(value):
        data = bytearray(100 * 16384)
        data[57 * 16384 : 58 * 16384] = bytes([value]) * 16384
        path = tmp_path / "model.safetensors"
        path.write_bytes(len(text).to_bytes(8, "little") + text + data)
        return digest_of_model(tmp_path, revision=None, dtype="bfloat16", tp_size=1)

    assert digest_with(1) == digest_with(1) != digest_with(2)
