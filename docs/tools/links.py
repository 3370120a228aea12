"""Checks that every link of the built site leads somewhere: pages, pictures, styles, and the places inside of pages; and that
nothing that a page needs is loaded from another site.

Links to other sites are not followed, and the Rust reference, which rustdoc checks itself, is only linked to.

    python docs/tools/links.py target/site
"""

import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """What a page links to and which places it has."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.places: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and name in ("href", "src"):
                self.links.add(value)
                if name == "src" or tag == "link" and dict(attrs).get("rel") in ("stylesheet", "icon", "preload"):
                    self.loaded.add(value)
            elif value and name in ("id", "name"):
                self.places.add(value)


read = cache(Page)


def broken(site: Path) -> list[str]:
    """A line for each link that leads nowhere, and for what is loaded from elsewhere."""
    found = []
    for path in sorted(site.rglob("*.html")):
        name = path.relative_to(site)
        if name.parts[0] == "rust" or name.name == "404.html":
            continue
        for link in sorted(read(path).links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in read(path).loaded and parts.scheme != "data":
                    found.append(f"{name}: {link} is loaded from another site")
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.is_file():
                found.append(f"{name}: {link} is not there")
            elif parts.fragment and target.suffix == ".html" and target.relative_to(site).parts[0] != "rust":
                if unquote(parts.fragment) not in read(target).places | {"__top"}:
                    found.append(f"{name}: {link} has no such place")
    return found


if __name__ == "__main__":
    errors = broken(Path(sys.argv[1]).resolve())
    for error in errors:
        print(f"links: {error}", file=sys.stderr)
    sys.exit(bool(errors))
