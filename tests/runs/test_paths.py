import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlhf_studio.runs import paths


def test_run_ids_are_safe_names_and_differ():
    ids = {paths.new_run_id() for _ in range(200)}
    assert len(ids) == 200
    assert all(re.fullmatch(r"[a-z0-9-]{8,40}", run_id) and paths.is_run_name(run_id) for run_id in ids)


# The shapes of MLflow's test_validate_path_is_safe_bad and of the advisories that followed it.
WAYS_OUT = [
    "/etc/passwd", "../other", "./../other", "a/../../other", "..\\other", "C:\\other",
    "%2e%2e%2fother", "%252e%252e%252fother", "~/other", "//host/share",
    "file:///etc/passwd", "a/..", "..", ".", "", "a\x00b", "a\nb",
]  # fmt: skip


def test_contained_path_refuses_ways_out(tmp_path: Path):
    for name in WAYS_OUT:
        with pytest.raises(ValueError, match="cannot be used"):
            print(name, paths.contained_path(tmp_path, name))


def test_contained_path_accepts_names_inside(tmp_path: Path):
    assert paths.contained_path(tmp_path, "run-1") == (tmp_path / "run-1").resolve()
    assert paths.contained_path(tmp_path, "checkpoints/step-000060") == (tmp_path / "checkpoints/step-000060").resolve()


def test_contained_path_does_not_follow_links_out(tmp_path: Path):
    root = tmp_path / "run"
    sibling = tmp_path / "run-prefix"  # begins with the root's own name: startswith() would be fooled
    root.mkdir()
    sibling.mkdir()
    (root / "etc").symlink_to("/etc")
    (root / "sibling").symlink_to(sibling)
    (root / "self").symlink_to(root)
    for name in ("etc", "etc/passwd", "sibling", "self"):
        with pytest.raises(ValueError, match="leads out"):
            paths.contained_path(root, name)


def test_contained_path_when_resolving_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    base = tmp_path.resolve()
    resolve = Path.resolve

    def fail(self: Path, strict: bool = False) -> Path:
        if self.name == "one":
            raise RuntimeError("Symlink loop")
        return resolve(self, strict)

    monkeypatch.setattr(Path, "resolve", fail)
    with pytest.raises(ValueError, match="leads nowhere"):
        paths.contained_path(base, "one")


@settings(max_examples=40)
@given(st.text(max_size=30) | st.text(alphabet="./\\%2eab~:", max_size=12))
def test_contained_path_never_leads_out(name: str):
    root = Path("/tmp/some-root-that-need-not-exist").resolve()
    try:
        path = paths.contained_path(root, name)
    except ValueError:
        return
    assert path != root and path.is_relative_to(root)


def test_run_dir_takes_ids_only(tmp_path: Path):
    folder = tmp_path / "runs" / "my_Run.2"
    folder.mkdir(parents=True)
    (tmp_path / "runs" / "alias").symlink_to(folder)
    assert paths.run_dir(tmp_path, "my_Run.2") == folder.resolve()
    for name in ("", ".hidden", "-o", "a b", "a/b", "x" * 101, "<img>", "é"):
        with pytest.raises(ValueError, match="not the id"):
            paths.run_dir(tmp_path, name)
    with pytest.raises(ValueError, match="is a link"):
        paths.run_dir(tmp_path, "alias")


def test_checkpoint_folders_have_names_that_sort_by_step(tmp_path: Path):
    assert paths.checkpoint_dir(tmp_path, 60) == tmp_path / "checkpoints" / "step-000060"
    assert paths.checkpoint_step("step-000060") == 60
    assert paths.checkpoint_step(paths.checkpoint_dir(tmp_path, 1_000_000).name) == 1_000_000
    for name in ("step-60", "step-000060.tmp", ".step-000060", "other"):
        assert paths.checkpoint_step(name) is None
    with pytest.raises(ValueError, match="0 or more"):
        paths.checkpoint_dir(tmp_path, -1)


def test_workspace_of_a_run_folder(tmp_path: Path):
    assert paths.workspace_of(tmp_path / "runs" / "a") == tmp_path
    assert paths.workspace_of(tmp_path / "elsewhere" / "a") is None
