"""What ``mkdocs build`` needs beside docs/: the pages of the repository's root, and links that lead out of the site.

README.md is the first page. A link to a file of the source, which is no page, becomes its text; the file must be there.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
PAGES = {"README.md": "index.md", "README.zh.md": "zh.md"} | {
    name: name for name in ("AGENTS.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
}
IMAGES = "assets/images"
SHIM = "assets/iframe-worker.js"  # mkdocs-material would take it from the network
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s:#]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of the root and the images that they show."""
    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text(encoding="utf-8")))
    for image in (ROOT / IMAGES).iterdir():
        files.append(File.generated(config, f"{IMAGES}/{image.name}", abs_src_path=str(image)))
    files.append(File.generated(config, SHIM, abs_src_path=str(Path(__file__).with_name("iframe-worker.js"))))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links as they hold in the site, where the root's pages and those of docs/ lie beside one another."""
    base = PurePosixPath("" if page.file.src_uri in PAGES.values() else "docs")
    return LINK.sub(lambda match: _link(match, base), markdown).replace(f"](../{IMAGES}/", f"]({IMAGES}/")


def _link(match: re.Match[str], base: PurePosixPath) -> str:
    text, target, anchor = match[1], match[2], match[3] or ""
    path = (ROOT / base / target).resolve()
    if not path.is_relative_to(ROOT) or not path.exists():
        raise PluginError(f"{match[0]} leads to nothing")
    name = path.relative_to(ROOT).as_posix()
    if name.startswith("docs/"):
        return f"[{text}]({name.removeprefix('docs/')}{anchor})"
    return f"[{text}]({PAGES[name]}{anchor})" if name in PAGES else text
