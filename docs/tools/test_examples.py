"""Runs the examples of the documentation, page by page and from top to bottom, each page in a folder of its own.

Blocks of ```python share their names along a page, blocks of ```sh their variables. `wiski` is the command that
WISKI_COMMAND names. The folder begins with heat_pump.csv and the files of samples.py. Comments, which no reader sees, say what
else there is to know:

    <!-- hidden python ... -->  code that is run but not shown: what an example needs, or what must hold after it
    <!-- hidden sh ... -->      the same for the shell
    <!-- background -->         the next block of ```sh goes on until the end of the page (a server)
    <!-- needs: torch -->       the next block is run only where this can be imported
    <!-- not run: reason -->    the next block is not run

Two things differ from what is shown: `tail -f` is `cat`, since it would not end, and port 8080 is one that is free.
"""

import importlib.util
import os
import re
import socket
import subprocess
import time
from pathlib import Path

import pytest
import samples

PROJECT = Path(__file__).resolve().parents[2]
COMMAND = Path(os.environ.get("WISKI_COMMAND", PROJECT / "target" / "debug" / "wiski")).resolve()
PAGES = [
    p.relative_to(PROJECT).as_posix()
    for pattern in ("README.md", "crates/*/README.md", "bindings/python/README.md", "docs/**/*.md")
    for p in sorted(PROJECT.glob(pattern))
    if not p.is_symlink()
]

BLOCK = re.compile(
    r"^```(?P<language>\w+)\n(?P<code>.*?)^```$"
    r"|^<!-- hidden (?P<hidden>python|sh)\n(?P<hidden_code>.*?)^-->$"
    r"|^<!-- (?P<mark>background|needs|not run)(?:: (?P<value>.*?))? -->$",
    re.S | re.M,
)


class Example:
    """The examples of one page, run in one folder."""

    def __init__(self, page: str, folder: Path) -> None:
        self.page, self.folder = page, folder
        self.names: dict[str, object] = {"__name__": "__main__"}
        self.started: list[subprocess.Popen[bytes]] = []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        (folder / "bin").mkdir()
        (folder / "bin" / "wiski").symlink_to(COMMAND)
        # An answer of the server that is an error ends an example.
        (folder / ".curlrc").write_text("fail-with-body\nsilent\nshow-error\n")
        samples.make(folder)
        self.environment = {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}", "CURL_HOME": str(folder)}

    def run(self) -> int:
        """Runs everything and says how many blocks that were."""
        text, count, mark, value = (PROJECT / self.page).read_text(encoding="utf-8"), 0, None, None
        for found in BLOCK.finditer(text):
            if found["mark"]:
                mark, value = found["mark"], found["value"]
                assert mark == "background" or value, f"{self.page}: `{mark}` says no reason"
                continue
            language, code = (found["language"] or found["hidden"]), (found["code"] or found["hidden_code"])
            line = text.count("\n", 0, found.start()) + 1
            # A mark is about the next block that is shown; what it needs may stand between.
            left_out = mark == "not run" or mark == "needs" and not importlib.util.find_spec(value)
            if language in ("python", "sh") and not left_out:
                code = code.replace(":8080", f":{self.port}").replace("tail -f", "cat")
                code = code.replace("wiski serve ", f"wiski serve --listen 127.0.0.1:{self.port} ")
                self.python(code, line) if language == "python" else self.shell(code, line, mark == "background")
                count += 1
            if not found["hidden"] or mark == "background":
                mark = None
        return count

    def python(self, code: str, line: int) -> None:
        # Empty lines in front, so that messages name the line of the page.
        exec(compile("\n" * line + code, str(PROJECT / self.page), "exec"), self.names)  # noqa: S102

    def shell(self, code: str, line: int, background: bool) -> None:
        before = "set -euo pipefail; [[ ! -f .variables ]] || source .variables; set -a\n"
        after = "" if background else "\nset +a; export -p >.variables"
        command = ["bash", "-c", before + code + after]
        if background:
            self.started.append(subprocess.Popen(command, cwd=self.folder, env=self.environment))
            return self.wait()
        done = subprocess.run(command, cwd=self.folder, env=self.environment, timeout=600, capture_output=True, text=True)
        print(done.stdout[-5000:], done.stderr[-5000:])
        assert done.returncode == 0, f"{self.page}, line {line}, ended with {done.returncode}:\n{code}\n{done.stderr[-2000:]}"

    def wait(self) -> None:
        for _ in range(300):
            time.sleep(0.1)
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
        raise AssertionError(f"{self.page}: nothing listens on port {self.port}")

    def stop(self) -> None:
        for process in self.started:
            process.terminate()
            process.wait(30)


@pytest.mark.parametrize("page", PAGES)
def test_examples(page, tmp_path, monkeypatch):
    assert COMMAND.is_file(), f"{COMMAND} is not there: ./check --docs builds it"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    example = Example(page, tmp_path)
    try:
        if not example.run():
            pytest.skip("nothing to run")
    finally:
        example.stop()
