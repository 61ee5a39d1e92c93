"""Parquet files, folders laid out as datasets, and hub datasets: compared with what pyarrow wrote.

No hub is reached in tests: a server on this machine, a folder with a dataset's files, and replaced functions stand in for it.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import huggingface_hub
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import errors

from rlhf_studio.child_process.environment import NO_HUB_TOKEN
from rlhf_studio.config import DataConfig
from rlhf_studio.inputs.prompts import PromptsError, read_prompts
from rlhf_studio.inputs.prompts.sources import tables
from rlhf_studio.inputs.prompts.sources.hub import open_hub
from rlhf_studio.inputs.prompts.sources.opening import is_remote
from rlhf_studio.inputs.prompts.sources.parquet import MAX_CELL_BYTES, open_parquet
from rlhf_studio.inputs.prompts.sources.tables import plain
from tests.inputs.hub_server import COMMIT, TOKEN, hub_server

COLUMN = {"data.column": "prompt"}
TEXTS = [f"prompt {row} é" for row in range(1000)]


def write_parquet(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, **options)
    return path


def config(path: Path | str, **settings: Any) -> DataConfig:
    return DataConfig(prompts=str(path), **settings)


def drain(rows: Iterator[Any]) -> list[list[Any]]:
    return [row.cells for row in rows]


# --- Parquet ---------------------------------------------------------------------------------------------------------------


def test_a_parquet_file_through_the_helper(real_helpers: None, tmp_path: Path) -> None:
    """One whole way: started as a process, several row groups, a reference, blank rows."""
    path = write_parquet(tmp_path / "p.parquet", {"id": range(1000), "prompt": [*TEXTS[:-1], None], "answer": TEXTS}, row_group_size=130)
    prompts = read_prompts(config(path, reference_column="answer"))
    assert (prompts.texts, prompts.references) == (TEXTS[:-1], TEXTS[:-1])
    assert prompts.columns == ["id", "prompt", "answer"] and prompts.left_out == {"blank": 1}
    assert prompts.rows[999 - 1].number == 999
    assert read_prompts(config(path, max_prompts=3)).texts == TEXTS[:3]  # the helper is ended in the middle


def test_text_in_every_form_that_parquet_has(tmp_path: Path) -> None:
    texts = ["a", "b é", "a"]
    forms = (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string()))
    for kind, compression in zip(forms, ("snappy", "zstd", "gzip", "none"), strict=True):
        path = write_parquet(tmp_path / "p.parquet", {"prompt": pa.array(texts).cast(kind)}, compression=compression)
        assert drain(open_parquet(path, COLUMN).rows) == [[text] for text in texts], kind


BAD_CELLS = {
    "numbers": (pa.array([1.5]), "row 1 holds float in 'prompt', not text"),
    "nested lists": (pa.array([[["x"]]]), "row 1 holds a list in 'prompt', not text"),
    "objects": (pa.array([{"x": "y"}]), "row 1 holds dict in 'prompt', not text"),
    "not utf-8": (
        pa.Array.from_buffers(pa.string(), 2, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pa.py_buffer(b"a\xe9")]),
        "row 2 is not UTF-8 text (byte 0xe9) in 'prompt'",
    ),
    "a megabyte": (pa.array(["short", "x" * 1_000_000]), "row 2 is longer than 100,000 characters"),
}


@pytest.mark.parametrize("case", BAD_CELLS)
def test_a_cell_that_is_no_prompt(case: str, tmp_path: Path) -> None:
    column, message = BAD_CELLS[case]
    path = write_parquet(tmp_path / "p.parquet", {"prompt": column})
    with pytest.raises(PromptsError) as caught:
        read_prompts(config(path))
    assert message in caught.value.message


def test_files_that_are_no_parquet(tmp_path: Path) -> None:
    good = write_parquet(tmp_path / "p.parquet", {"prompt": TEXTS})
    for content in (b"", b"PAR1", b"PAR1" * 1000, good.read_bytes()[:-20]):
        bad = tmp_path / "bad.parquet"
        bad.write_bytes(content)
        with pytest.raises(PromptsError, match="bad.parquet is not a readable Parquet file"):
            open_parquet(bad, COLUMN)


def test_a_parquet_file_with_damaged_pages(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "p.parquet", {"prompt": TEXTS}, compression="gzip")
    content = bytearray(path.read_bytes())
    content[40:400] = bytes(360)
    path.write_bytes(content)
    with pytest.raises(PromptsError, match="the rows after 0 cannot be read"):
        drain(open_parquet(path, COLUMN).rows)


def test_a_cell_is_measured_before_it_is_made(tmp_path: Path) -> None:
    """Nested lists too: the size of a row is known to Arrow before Python objects are made of it."""
    path = write_parquet(tmp_path / "p.parquet", {"prompt": pa.array([["x"] * MAX_CELL_BYTES])})
    with pytest.raises(PromptsError, match="row 1 is longer"):
        drain(open_parquet(path, COLUMN).rows)


def test_a_parquet_bomb_meets_the_memory_limit(real_helpers: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few kilobytes that unpack to gigabytes: the helper runs into its limit, this process does not notice."""
    bomb = pa.array(["x" * 10_000_000]).dictionary_encode()
    rows = pa.DictionaryArray.from_arrays(pa.array([0] * 64, pa.int32()), bomb.dictionary)
    path = write_parquet(tmp_path / "p.parquet", {"prompt": rows}, compression="zstd", compression_level=9, store_schema=False)
    assert path.stat().st_size < 100_000
    monkeypatch.setattr(tables, "MEMORY_BYTES", 700_000_000)
    with pytest.raises(PromptsError) as caught:
        read_prompts(config(path))
    assert "need too much memory" in caught.value.message or "is longer than" in caught.value.message


def test_rows_that_are_too_long_by_the_files_own_account_are_never_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = write_parquet(tmp_path / "one.parquet", {"prompt": ["short"] * 3 + ["x" * 17_000_000]}, compression="zstd", row_group_size=3)
    many = write_parquet(tmp_path / "many.parquet", {"prompt": [f"{row}" + "x" * 800_000 for row in range(30)]}, compression="zstd")
    beside = write_parquet(tmp_path / "beside.parquet", {"prompt": ["short"], "x": ["x" * 17_000_000]}, compression="zstd")
    assert max(path.stat().st_size for path in (long, many, beside)) < 10_000
    assert drain(open_parquet(beside, COLUMN).rows) == [["short"]]
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", lambda *_, **__: pytest.fail("the rows were read"))
    with pytest.raises(PromptsError, match="row 4 is longer than 100,000 characters"):
        open_parquet(long, COLUMN)
    with pytest.raises(PromptsError, match="rows 1 to 30 hold more than 100,000 characters each on average"):
        open_parquet(many, COLUMN)


def test_rows_come_in_packs_of_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The side that reads the answers holds several packs: 200 rows of 99,990 wide characters would be 240 MB each."""
    rows = pa.DictionaryArray.from_arrays(pa.array([0] * 40, pa.int32()), pa.array(["\U0001f600" * 90_000]))
    path = write_parquet(tmp_path / "p.parquet", {"prompt": rows}, store_schema=False)
    lines: list[str] = []
    monkeypatch.setattr(tables, "read_task", lambda: {"path": str(path), "columns": COLUMN, "usual": [], "limit": None})
    monkeypatch.setattr(tables, "answer", lambda message: lines.append(json.dumps(message)))
    tables.main()
    assert path.stat().st_size < 20_000
    assert sum(len(json.loads(pack).get("rows", [])) for pack in lines) == 40
    assert max(map(len, lines)) < 12 * (1_000_000 + 2 * 90_000)


# --- a folder as a dataset -------------------------------------------------------------------------------------------------------


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Two subsets; the first with two splits."""
    folder = tmp_path / "owner" / "reviews"
    write_parquet(folder / "en" / "train-00000-of-00002.parquet", {"prompt": TEXTS[:600], "stars": range(600)})
    write_parquet(folder / "en" / "train-00001-of-00002.parquet", {"prompt": TEXTS[600:], "stars": range(400)})
    write_parquet(folder / "en" / "test.parquet", {"prompt": ["a test"], "stars": [1]})
    write_parquet(folder / "nl" / "train.parquet", {"prompt": ["een proef"], "stars": [1]})
    listed = [
        {"config_name": "en", "data_files": [{"split": "train", "path": "en/train*"}, {"split": "test", "path": "en/test*"}]},
        {"config_name": "nl", "data_files": "nl/*"},
    ]
    (folder / "README.md").write_text(f"---\nconfigs: {json.dumps(listed)}\n---\n")
    return folder


def rows_of(folder: Path, subset: str = "", split: str = "train", column: str = "prompt") -> list[list[Any]]:
    return drain(open_hub(str(folder), subset, split, "main", {"data.column": column}).rows)


def test_subsets_and_splits(dataset: Path) -> None:
    assert rows_of(dataset, "en") == [[text] for text in TEXTS]
    assert rows_of(dataset, "en", "test") == [["a test"]]
    assert rows_of(dataset, "nl") == [["een proef"]]
    assert [row for [row] in rows_of(dataset, "en")] == datasets.load_dataset(str(dataset), "en", split="train", streaming=True)._head(
        1000
    )["prompt"]


@pytest.mark.parametrize(
    ("choice", "field", "message"),
    [
        (("", "train"), "data.subset", "has several subsets; choose one of: en, nl"),
        (("fr", "train"), "data.subset", "has no subset 'fr'; there are: en, nl"),
        (("en", "dev"), "data.split", "has no split 'dev'; there are: train, test"),
        (("en", "train", "text"), "data.column", "there is no column 'text'; the columns are: prompt, stars"),
    ],
)
def test_choices_that_a_dataset_does_not_have(dataset: Path, choice: tuple[str, ...], field: str, message: str) -> None:
    with pytest.raises(PromptsError) as caught:
        rows_of(dataset, *choice)
    assert caught.value.field == field and message in caught.value.message


def test_a_folder_through_the_helper(dataset: Path) -> None:
    heard: list[str] = []
    prompts = read_prompts(config(dataset, subset="en", max_prompts=700, column="prompt"), tick=heard.append)
    assert prompts.texts == TEXTS[:700] and prompts.columns == ["prompt", "stars"]
    assert all(text.startswith("Opening ") or " rows of " in text for text in heard)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("photo.png", b"\x89PNG", "holds files of the kind imagefolder, not tables of text"),
        ("notes.docx", b"x", "holds no tables that can be read"),
        ("train.jsonl", b'{"prompt": "x"}\n{"prompt"', "cannot be"),
    ],
)
def test_folders_without_tables(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / name).write_bytes(content)
    with pytest.raises(PromptsError) as caught:
        rows_of(folder)
    assert caught.value.field == "data.prompts" and message in caught.value.message


def test_only_the_wanted_columns_of_a_dataset_are_read_a_few_rows_at_a_time(tmp_path: Path) -> None:
    """300 bytes that the library unpacks to 200 MB for the first row; and a damaged column that nobody asked for."""
    rows = pa.DictionaryArray.from_arrays(pa.array([0] * 2_000, pa.int32()), pa.array(["x" * 99_990]))
    bomb = write_parquet(tmp_path / "d" / "a.parquet", {"prompt": rows}, compression="zstd", store_schema=False)
    usual = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(usual)
    pa.set_memory_pool(counted)
    try:
        first = next(open_hub(str(bomb.parent), "", "train", "main", COLUMN).rows)
    finally:
        pa.set_memory_pool(usual)
    assert (bomb.stat().st_size < 1_000, first.cells) == (True, ["x" * 99_990])
    assert counted.max_memory() < 30_000_000
    path = write_parquet(tmp_path / "e" / "a.parquet", {"other": TEXTS, "prompt": TEXTS}, compression="gzip")
    content = bytearray(path.read_bytes())
    content[40:400] = bytes(360)
    path.write_bytes(content)
    assert rows_of(path.parent) == [[text] for text in TEXTS]
    with pytest.raises(PromptsError, match="the rows after 0 cannot be read"):
        rows_of(path.parent, column="other")


def test_an_archive_in_a_folder_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    write_parquet(tmp_path / "good.parquet", {"prompt": ["x"]})
    (tmp_path / "parts" / "more.ZIP").touch()
    with pytest.raises(PromptsError, match="holds more.ZIP, which is packed; unpack it first"):
        read_prompts(config(tmp_path))


def test_a_script_is_never_run(tmp_path: Path) -> None:
    folder = tmp_path / "canary"
    folder.mkdir()
    (folder / "canary.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    with pytest.raises(PromptsError):
        rows_of(folder)
    assert not (tmp_path / "ran").exists()


# --- the hub ---------------------------------------------------------------------------------------------------------------------


# The HTTP library that the installed client of the hub speaks with.
HTTP = importlib.import_module(errors.HfHubHTTPError.__mro__[1].__module__.split(".")[0])


def response(status: int) -> Any:
    return HTTP.Response(status, request=HTTP.Request("GET", "https://hub.example"))


HUB_ERRORS = {
    "missing": (errors.RepositoryNotFoundError("no", response=response(404)), "data.prompts", "no such dataset on the Hugging Face hub"),
    "gated": (errors.GatedRepoError("no", response=response(403)), "data.prompts", "is gated: accept its terms"),
    "revision": (errors.RevisionNotFoundError("no", response=response(404)), "data.revision", "has no revision main"),
    "offline": (HTTP.ConnectError("name or service not known"), "data.prompts", "cannot be reached (name or service not known)"),
    "name": (errors.HFValidationError("no"), "data.prompts", "it is no dataset id"),
}


@pytest.mark.parametrize("case", HUB_ERRORS)
def test_what_the_hub_can_answer(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    error, field, message = HUB_ERRORS[case]
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)

    def refuse(self: Any, name: str, **_: Any) -> None:
        raise error

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", refuse)
    with pytest.raises(PromptsError) as caught:
        open_hub("owner/set", "", "train", "main", COLUMN)
    assert caught.value.field == field and message in caught.value.message


def test_a_dataset_over_http_through_the_helper(real_helpers: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real library against a server that answers as the hub does: only the pieces with the wanted rows are fetched."""
    texts = [f"row {row} " + "film " * 200 for row in range(30_000)]
    path = write_parquet(
        tmp_path / "set" / "data" / "train.parquet", {"text": texts}, row_group_size=500, compression="none", use_dictionary=False
    )
    write_parquet(tmp_path / "set" / "data" / "test.parquet", {"text": ["a test"]})
    with hub_server(tmp_path / "set") as (address, served):
        monkeypatch.setenv("HF_ENDPOINT", address)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
        for name in ("HF_TOKEN", NO_HUB_TOKEN):
            monkeypatch.delenv(name, raising=False)
        prompts = read_prompts(config("owner/set", column="text", max_prompts=700))
        assert prompts.texts == texts[:700]
        assert prompts.notes == [f"owner/set is read at commit {COMMIT[:12]}."]
        assert sum(served) < path.stat().st_size / 2  # in blocks of 5 MB
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        assert read_prompts(config("owner/gated", column="text", max_prompts=2, split="test")).texts == ["a test"]


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """owner/set as the library stores it after a download; the hub cannot be reached."""
    source = write_parquet(tmp_path / "set" / "train.parquet", {"prompt": TEXTS[:9]}).parent
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    datasets.load_dataset(str(source), cache_dir=str(tmp_path / "cache"))
    (tmp_path / "cache" / "set").rename(tmp_path / "cache" / "owner___set")

    def refuse(self: Any, name: str, **_: Any) -> None:
        raise HTTP.ConnectError("no network")

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", refuse)


def test_without_a_connection_a_stored_copy_is_read(stored: None) -> None:
    source = open_hub("owner/set", "", "train", "main", COLUMN)
    assert drain(source.rows) == [[text] for text in TEXTS[:9]]
    assert source.notes == [
        "The Hugging Face hub cannot be reached: owner/set is read from the copy on this machine, whichever revision that is."
    ]
    with pytest.raises(PromptsError, match="data.split: owner/set has no split 'test'; there are: train"):
        open_hub("owner/set", "", "test", "main", COLUMN)
    with pytest.raises(PromptsError, match="owner/other is not on this machine, and the Hugging Face hub cannot be reached"):
        open_hub("owner/other", "", "train", "main", COLUMN)


def test_a_gated_dataset_whose_page_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Any, name: str, *, repo_type: str) -> None:
        assert (name, repo_type) == ("owner/set", "dataset")
        raise errors.GatedRepoError("no", response=response(403))

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *_, **__: SimpleNamespace(gated="manual", sha="abc"))
    monkeypatch.setattr(huggingface_hub.HfApi, "auth_check", refuse)
    with pytest.raises(PromptsError, match="is gated"):
        open_hub("owner/set", "", "train", "main", COLUMN)


def test_a_hub_dataset_is_read_at_one_commit_and_only_as_far_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []

    def stream(split: str) -> Iterator[dict[str, Any]]:
        assert split == "test"
        for row in range(10**9):
            given.append(row)
            yield {"prompt": f"row {row}", "label": row}

    def load(name: str, subset: str | None, *, revision: str) -> Any:
        assert (name, subset, revision) == ("owner/set", "en", "abc123")
        return SimpleNamespace(name="json", as_streaming_dataset=lambda split: stream(split))

    def info(self: Any, name: str, *, revision: str, **_: Any) -> Any:
        return SimpleNamespace(gated=False, sha={"v6": "abc123"}[revision])

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", info)
    monkeypatch.setattr(datasets, "load_dataset_builder", load)
    prompts = read_prompts(config("owner/set", subset="en", split="test", revision="v6", max_prompts=1000), limit=50)
    assert prompts.texts == [f"row {row}" for row in range(50)] and len(given) == 50
    assert prompts.partial and prompts.notes == ["owner/set is read at commit abc123.", "Not used: the column 'label'."]


LIBRARY_ERRORS = {
    "script": (RuntimeError("Dataset scripts are no longer supported, but found set.py"), "data.prompts", "is a Python script"),
    "gated": (datasets.exceptions.DatasetNotFoundError("'x' is a gated dataset on the Hub."), "data.prompts", "is gated"),
    "offline": (ConnectionError("Couldn't reach 'x' on the Hub"), "data.prompts", "hub cannot be reached for owner/set (Couldn't reach"),
    "no files": (datasets.exceptions.DataFilesNotFoundError("No (supported) data files found"), "data.prompts", "holds no tables"),
    "anything": (KeyError("features"), "data.prompts", "owner/set cannot be opened ('features')"),
    "unlisted": (ValueError("Bad split: x. Available splits: [oops"), "data.split", "there are: none that can be listed"),
}


@pytest.mark.parametrize("case", LIBRARY_ERRORS)
def test_what_the_library_can_say(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    error, field, message = LIBRARY_ERRORS[case]

    def refuse(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *_, **__: SimpleNamespace(gated=False, sha="abc"))
    monkeypatch.setattr(datasets, "load_dataset_builder", refuse)
    with pytest.raises(PromptsError) as caught:
        open_hub("owner/set", "", "train", "main", COLUMN)
    assert caught.value.field == field and message in caught.value.message


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (MemoryError(), "after 1 need too much memory"),
        (OSError("reset"), r"after 1 cannot be read \(reset\)"),
        (UnicodeDecodeError("utf-8", b"caf\xe9", 3, 4, "end"), r"after 1 are not UTF-8 text \(byte 0xe9\); save the file as UTF-8"),
    ],
)
def test_a_connection_that_breaks_off(error: Exception, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def stream(split: str) -> Iterator[dict[str, str]]:
        yield {"prompt": "x"}
        raise error

    builder = SimpleNamespace(name="json", as_streaming_dataset=stream)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *_, **__: SimpleNamespace(gated=False, sha="abc"))
    monkeypatch.setattr(datasets, "load_dataset_builder", lambda *_, **__: builder)
    with pytest.raises(PromptsError, match=message):
        drain(open_hub("owner/set", "", "train", "main", COLUMN).rows)


@pytest.mark.parametrize(
    ("name", "remote"),
    [
        ("stanfordnlp/imdb", True),
        ("imdb", True),
        ("data.csv", False),
        ("owner/data.jsonl", False),
        ("bundled/world-prompts", False),
        ("x--y", False),
        ("..", False),
    ],
)
def test_which_names_are_looked_up_on_the_hub(name: str, remote: bool) -> None:
    assert is_remote(name) == remote


def test_cells_as_json_can_carry_them() -> None:
    cell = {1: [None, True, 2, 0.5, "x"], "t": (b"y", float("nan"))}
    assert plain(cell) == {"1": [None, True, 2, 0.5, "x"], "t": [{"__type__": "bytes"}, {"__type__": "float"}]}
