"""SGLang's own MooncakeEmbeddingStore and ours in raw format, on one real Mooncake cluster in a network
namespace; by hand: make test-engines. Mooncake is that of .venv."""
import os
import pathlib
import subprocess
import sys
import traceback

ROOT = pathlib.Path(__file__).resolve().parents[3]
CHILD = "EMBERCACHE_RAW_CHILD"


def test_objects_of_either_are_hits_of_the_other(tmp_path):
    packages = next((ROOT / ".venv").glob("lib/python3*/site-packages"))
    for name in "mooncake", "mooncake_transfer_engine_non_cuda.libs":
        (tmp_path / name).symlink_to(packages / name)
    own = ["unshare", "--net"] + ([] if os.geteuid() == 0 else ["--user", "--map-root-user"])
    variables = {
        "PYTHONPATH": f"{tmp_path}:{os.environ['PYTHONPATH']}",
        "MOONCAKE_MASTER": "127.0.0.1:50051",
        "MOONCAKE_LOCAL_HOSTNAME": "127.0.0.1",
        "MOONCAKE_GLOBAL_SEGMENT_SIZE": "0",
        "MOONCAKE_PROTOCOL": "tcp",
        "EMBERCACHE_MM_GLOBAL_CACHE_CONFIG": '{"format":"raw","bridge":"wheel","python":"%s"}'
        % (ROOT / ".venv/bin/python"),
    }
    done = subprocess.run(
        [*own, "sh", "-c", 'ip link set lo up && exec "$@"', "sh", sys.executable, __file__],
        env=os.environ | variables | {CHILD: str(packages / "mooncake")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def wait_for_port(port):
    import socket
    import time

    deadline = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            assert time.monotonic() < deadline, port
            time.sleep(0.05)


def check():
    import time

    import numpy
    import torch
    from sglang.srt.mem_cache.storage.mooncake_store.mooncake_embedding_store import MooncakeEmbeddingStore

    from embercache import sglang as ours

    theirs = MooncakeEmbeddingStore()
    raw = ours.EmbeddingStoreFactory.create_backend("mooncake")  # as SGLang calls it: no arguments
    deadline = time.monotonic() + 60
    while raw.native.health[0] != "up":
        assert time.monotonic() < deadline, raw.native.health
        time.sleep(0.05)
    assert raw.native.raw and raw.get_key("17") == theirs.get_key("17") == "emb_17"

    memory = torch.zeros(4 << 20, dtype=torch.uint8)
    theirs.register_buffer(memory)
    base = memory.data_ptr()
    rows = torch.arange(300 * 256, dtype=torch.float32).reshape(300, 256)
    content = rows.flatten().view(torch.uint8)
    size = content.numel()
    parts, sizes = [[base, base + (1 << 20)]], [[1 << 18, size - (1 << 18)]]

    def fill(tensor):
        memory[: 1 << 18] = tensor[: 1 << 18]
        memory[1 << 20 : (1 << 20) + size - (1 << 18)] = tensor[1 << 18 :]

    def filled():
        return torch.cat((memory[: 1 << 18], memory[1 << 20 : (1 << 20) + size - (1 << 18)]))

    # Theirs is a hit of our store, and of our controller.
    fill(content)
    assert theirs.batch_put_from_multi_buffers(["theirs"], parts, sizes) == [True]
    got = torch.zeros_like(content)
    assert raw.batch_is_exist(["theirs", "nobody's"]) == [True, False]
    assert raw.batch_get(["theirs"], [got.data_ptr()], [size]) == [True]
    assert torch.equal(got, content)
    assert raw.batch_get(["theirs"], [got.data_ptr()], [size - 1024]) == [False]
    os.environ["EMBERCACHE_LOOKUP_TIMEOUT_MS"] = "60000"
    controller = ours.EmbeddingCacheController(0, 1, raw, 8 / 1024, {"image": 256}, dtype=torch.float32)
    controller.prefetch("request", ["theirs"], [300], "image")
    assert controller.wait_prefetch("request")
    views = controller.get_pool_views(["theirs"])[0]
    assert numpy.array_equal(numpy.concatenate([numpy.asarray(view) for view in views]), rows.numpy())

    # Ours, of the store and of the controller, are theirs.
    other = content.flip(0).contiguous()
    assert raw.batch_put(["ours"], [other.data_ptr()], [size]) == [True]
    controller.wait_store_to_pool(controller.store_to_pool_async(["controller's"], [rows + 1], "image"))
    controller.insert_batch(["controller's"], "image")
    deadline = time.monotonic() + 60
    while theirs.batch_is_exist(["controller's"]) != [True]:
        assert time.monotonic() < deadline, "the controller does not publish"
        time.sleep(0.05)
    for mm_hash, expected in ("ours", other), ("controller's", (rows + 1).flatten().view(torch.uint8)):
        fill(torch.zeros_like(content))
        assert theirs.batch_is_exist([mm_hash]) == [True]
        assert theirs.batch_get_into_multi_buffers([mm_hash], parts, sizes) == [True]
        assert torch.equal(filled(), expected), mm_hash
    raw.close()


def main():
    programs = pathlib.Path(os.environ[CHILD])
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    processes = []
    try:
        for port, *words in (
            (50051, "mooncake_master", "--rpc_address=127.0.0.1", "--rpc_port=50051", "--metrics_host=127.0.0.1"),
            (50052, "mooncake_client", "--host=127.0.0.1", "--port=50052", "--metadata_server=P2PHANDSHAKE",
             "--master_server_address=127.0.0.1:50051", "--global_segment_size=256MB", "--local_buffer_size=16MB"),
        ):  # fmt: skip
            processes.append(subprocess.Popen([programs / words[0], *words[1:]], **quiet))
            wait_for_port(port)
        check()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()
    os._exit(0)  # a Mooncake client's end can hang


if __name__ == "__main__":
    main()
