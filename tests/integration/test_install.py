"""What `cmake --install` gives a C++ engine: find_package(embercache), as examples/cpp_cache uses it."""
import pathlib
import subprocess

from conftest import PROGRAM

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples/cpp_cache"


def run(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_an_engine_outside_the_tree_shares_embeddings_by_a_folder(tmp_path):
    run("cmake", "--install", PROGRAM.parents[1], "--component", "engine", "--prefix", tmp_path / "prefix")
    run("cmake", "-S", EXAMPLE, "-B", tmp_path / "build", "-D", f"CMAKE_PREFIX_PATH={tmp_path}/prefix")
    run("cmake", "--build", tmp_path / "build")
    said = run(tmp_path / "build/cpp_cache", tmp_path / "store").splitlines()
    assert [line for line in said if ":" in line and "Cache" not in line] == [
        "a cat: computed, 1048576 bytes",
        "a dog: computed, 1048576 bytes",
        "a cat: local, 1048576 bytes",
        "a cat: global, 1048576 bytes",
        "a dog: global, 1048576 bytes",
        "a cat: local, 1048576 bytes",
    ]
