"""Gathers the pages of the site from the files of the project, as they are.

The Markdown files are written to be read on a forge. For the site this script copies them into one folder and changes
what a forge does by itself:

* links go to the page that a file has become, and have its title where their text is the name of the file; a file that is no
  page (source, licences) becomes one of its own;
* formulas (```math and $`...`$) become MathML, which browsers draw without a script;
* comments, which hold what the tests of the examples need, are left out.

A link to a file that is not there is an error.

    python docs/tools/stage.py target/docs
"""

import re
import shutil
import sys
from os.path import normpath, relpath
from pathlib import Path

from latex2mathml.converter import convert

PROJECT = Path(__file__).resolve().parents[2]

# Pages that do not lie in docs/, and what they are called on the site.
ROOT = {
    "README.md": "overview.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
# Files that are shown to be downloaded, not to be read.
DATA = {".csv", ".json", ".png", ".svg", ".css"}
LANGUAGES = {".py": "python", ".rs": "rust", ".toml": "toml"}

FENCE = re.compile(r"^(```+|~~~+)(.*)$")
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
CODE = re.compile(r"`[^`]*`")
FORMULA = re.compile(r"\$`([^`]+)`\$")
COMMENT = re.compile(r"^<!--.*?-->\n?", re.S | re.M)


class Stage:
    def __init__(self, out: Path) -> None:
        self.out = out
        self.pages = dict(ROOT)
        for path in sorted((PROJECT / "docs").rglob("*.md")):
            name = path.relative_to(PROJECT).as_posix()
            self.pages[name] = name.removeprefix("docs/")
        self.waiting = list(self.pages)
        self.errors: list[str] = []

    def run(self) -> list[str]:
        shutil.rmtree(self.out, ignore_errors=True)
        for folder in ("results", "pictures", "stylesheets"):
            shutil.copytree(PROJECT / "docs" / folder, self.out / folder)
        while self.waiting:
            name = self.waiting.pop(0)
            text = (PROJECT / name).read_text(encoding="utf-8")
            text = self.page(name, text) if name.endswith(".md") else self.source(name, text)
            place = self.out / self.pages[name]
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        return self.errors

    def page(self, name: str, text: str) -> str:
        """A page with its links, formulas and comments as the site needs them. Code stays as it is."""
        lines, fence, formula = [], "", []
        for line in COMMENT.sub("", text).splitlines():
            mark = FENCE.match(line)
            if fence:
                if mark and mark[1] == fence and not mark[2]:
                    lines.append(f'<div class="formula">{convert(" ".join(formula), display="block")}</div>' if formula else line)
                    fence, formula = "", []
                elif formula:
                    formula.append(line)
                else:
                    lines.append(line)
            elif mark:
                fence = mark[1]
                # A list that is not empty says that a formula is being read.
                formula = [""] if mark[2] == "math" else []
                if not formula:
                    lines.append(line)
            else:
                line = FORMULA.sub(lambda m: f'<span class="formula">{convert(m[1])}</span>', line)
                if line.startswith("|"):  # a forge needs the backslash in code of a table
                    line = CODE.sub(lambda m: m[0].replace(r"\|", "|"), line)
                lines.append(LINK.sub(lambda m: self.link(name, m[1], m[2]), line))
        return "\n".join(lines) + "\n"

    def source(self, name: str, text: str) -> str:
        language = LANGUAGES.get(Path(name).suffix, "text")
        return f"---\nhide: [toc]\n---\n\n# {Path(name).name}\n\n`{name}`\n\n````{language}\n{text}````\n"

    def link(self, page: str, text: str, link: str) -> str:
        """A link of a page as it is on the site."""
        if re.match(r"[a-z]+:", link) or link.startswith("#"):
            return f"[{text}]({link})"
        path, _, anchor = link.partition("#")
        name = normpath((Path(page).parent / path).as_posix())
        if not (PROJECT / name).is_file():
            self.errors.append(f"{page}: there is no {link}")
            return text
        if name not in self.pages:
            self.add(name)
        if text in (path, Path(path).name) and name.endswith(".md"):
            text = (PROJECT / name).read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        place = relpath(self.pages[name], Path(self.pages[page]).parent)
        return f"[{text}]({place}{'#' if anchor else ''}{anchor})"

    def add(self, name: str) -> None:
        """A file that a page links to and that is no page of its own."""
        place = name.removeprefix("docs/") if name.startswith("docs/") else f"source/{name}"
        if Path(name).suffix in DATA:
            self.pages[name] = place
            (self.out / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(PROJECT / name, self.out / place)
        else:
            self.pages[name] = place if name.endswith(".md") else f"source/{name}.md"
            self.waiting.append(name)


if __name__ == "__main__":
    found = Stage(Path(sys.argv[1])).run()
    for error in found:
        print(f"stage: {error}", file=sys.stderr)
    sys.exit(bool(found))
