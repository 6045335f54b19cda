"""--help, its examples, completion and the manual page."""
import re
import shlex
import subprocess

import ec_server
import pytest
from conftest import PLUGINS, PROGRAM, picture, run

MANUAL = ec_server.ROOT / "docs/embercache.1"


def commands():
    text = run("--help").stdout
    return re.findall(r"^  (\w+) ", text[text.index("Subcommands:") :], re.M)


def long_options(text):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))


def help_of(command):
    text = run(command, "--help").stdout
    options = text[text.index("Options:") :].split("Examples:")[0]
    names = set()
    for line in options.splitlines():
        if match := re.match(r"  (-[-\w,]+)", line):
            names |= {name for name in match.group(1).split(",") if name.startswith("--")}
    return text, names


def test_defaults_are_shown_where_there_are_some():
    text = run("serve", "--help").stdout
    assert "--model [NAME=]DIR ...  " in text
    assert "--max-items N=64" in text
    assert "UINT" not in text


def test_every_command_has_a_description_and_help():
    assert len(commands()) >= 12
    for command in commands():
        text, names = help_of(command)
        assert text.strip() and "--help" in names


@pytest.fixture
def workshop(tmp_path, model, media):
    """A folder with what the examples name: photos, a store that has one of them, MODEL, KEY."""
    (tmp_path / "photos").mkdir()
    (tmp_path / "photo.jpg").write_bytes(picture("photo", kind="JPEG"))
    (tmp_path / "photos/photo.jpg").write_bytes(picture("photo", kind="JPEG"))
    (tmp_path / "MODEL").symlink_to(model)
    (tmp_path / "memory_plugin.so").symlink_to(PLUGINS / "memory_plugin.so")
    line = run("encode", "photo.jpg", "--model", "MODEL", "--file-store-dir", "store", cwd=tmp_path).stdout
    (tmp_path / "KEY").write_text(line.split()[0])
    return tmp_path


def examples():
    found = []
    for command in commands():
        text = run(command, "--help").stdout
        if "Examples:" in text:
            found += re.findall(r"^  ((?:[A-Z_]+=\S+ )?embercache .*)$", text[text.index("Examples:") :], re.M)
    return found


def test_the_examples_of_help_run(workshop):
    key = (workshop / "KEY").read_text()
    lines = examples()
    # `serve` does not end by itself, and `top` needs one; both are tested elsewhere.
    lines = [line for line in lines if "embercache serve" not in line and "embercache top" not in line]
    assert len(lines) >= 15
    for line in lines:
        command = re.sub(r"\bembercache\b", shlex.quote(str(PROGRAM)), line, count=1).replace("KEY", key)
        done = subprocess.run(["sh", "-c", command], cwd=workshop, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"{line}: {done.stderr}"


def test_the_manual_page_is_that_of_this_program():
    # Made anew by: build/release/bin/embercache man >docs/embercache.1
    assert run("man").stdout == MANUAL.read_text()


def test_the_manual_page_has_every_command_and_option_of_help():
    page = MANUAL.read_text().replace("\\-", "-").replace("\\fB", "")
    sections = re.split(r"^\.SS ", page, flags=re.M)
    described = {section.split("\n", 1)[0]: section for section in sections[1:]}
    assert sorted(described) == sorted(commands())
    for command in commands():
        assert help_of(command)[1] <= long_options(described[command])


def complete(*words):
    """What bash offers for the last of the words."""
    script = """
      source <("$1" completion bash); shift
      COMP_WORDS=(embercache "$@"); COMP_CWORD=$#
      _embercache
      printf '%s\\n' "${COMPREPLY[@]}"
    """
    done = subprocess.run(
        ["bash", "-c", script, "-", PROGRAM, *words], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.split()


def test_bash_completes_commands_options_and_backends(tmp_path):
    assert complete("ver") == ["verify", "version"]
    assert set(complete("")) >= set(commands())
    assert complete("ls", "--file") == ["--file-store-dir"]
    assert complete("ls", "--mm-global-cache-backend", "pl") == ["plugin"]
    (tmp_path / "image.png").touch()
    assert complete("encode", f"{tmp_path}/im") == [f"{tmp_path}/image.png"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_has_every_command_and_option_of_help(shell):
    script = run("completion", shell).stdout
    for command in commands():
        assert re.search(rf"\b{command}\b", script)
        for name in help_of(command)[1]:
            assert name in script or f"-l {name[2:]} " in script


def test_another_shell_is_refused():
    assert "bash, zsh or fish" in run("completion", "ksh", exit_code=2).stderr


@pytest.mark.parametrize(
    "words, parts",
    [
        (("serve", "--modell", "x"), ["serve has no option '--modell'", "did you mean --model?", "embercache serve --help"]),
        (("serve", "--modle=x"), ["'--modle'", "did you mean --model?"]),
        (("verify", "--file-store-dri", "x"), ["'--file-store-dri'", "did you mean --file-store-dir?", "embercache verify --help"]),
        (("ls", "--file-store", "x"), ["did you mean --file-store-dir?"]),
        (("ls", "--jsn"), ["did you mean --json?"]),
        (("ls", "--port", "1"), ["ls has no option '--port'", "embercache ls --help"]),
        (("serve", "models/vit"), ["serve", "'models/vit'", "--model", "embercache serve --help"]),
        (("ls", "store"), ["ls", "'store'", "--file-store-dir", "embercache ls --help"]),
        (("version", "x"), ["version", "'x'", "embercache version --help"]),
        (("get",), ["KEY is required", "embercache get --help"]),
        ((), ["no command", "embercache serve --model DIR", "embercache --help"]),
        (("serv",), ["no command 'serv'", "did you mean serve?", "embercache --help"]),
        (("bnech",), ["no command 'bnech'", "did you mean bench?"]),
        (("xyz",), ["no command 'xyz'", "embercache --help"]),
        (("--hlep",), ["there is no option '--hlep'; did you mean --help? See embercache --help"]),
        (("--model", "x", "serve"), ["'--model'", "behind the command"]),
        (("ls",), ["--file-store-dir DIR"]),
        (("conformance",), ["--file-store-dir DIR"]),
        (("serve", "--model", "m", "--enable-mm-global-cache"), ["--file-store-dir DIR"]),
    ],
)
def test_wrong_usage_is_one_line_that_says_what_would_be_right(words, parts):
    done = run(*words, exit_code=2)
    assert done.stdout == "" and done.stderr.startswith("embercache: ") and done.stderr.count("\n") == 1
    for part in parts:
        assert part in done.stderr


@pytest.mark.parametrize("words", [("xyz",), ("ls", "--port", "1"), ("serve", "--wholly-else")])
def test_nothing_is_suggested_where_nothing_is_near(words):
    assert "did you mean" not in run(*words, exit_code=2).stderr
