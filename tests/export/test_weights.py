"""What is taken home gives the checkpoint's logits, loads with plain transformers and peft, and carries nothing of this machine."""

from __future__ import annotations

import json
import runpy
import shutil
import zipfile
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from huggingface_hub import ModelCard
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from rlhf_studio.cli.main import main
from rlhf_studio.config import RunConfig
from rlhf_studio.config.bundled import ASSETS
from rlhf_studio.jobs.export import merging, targets
from rlhf_studio.jobs.export.weights import choose, write_generation
from rlhf_studio.lessons.faults.wording import broken_on_purpose
from rlhf_studio.runs import paths
from rlhf_studio.runs.lab.fault import EVENT as FAULT
from rlhf_studio.runs.liveness import EngineLock
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import EventRecord, StepRecord
from rlhf_studio.runs.writer import RunWriter
from tests.export import fakes
from tests.export.runs import PROMPT, TOKENIZER, run_with_policies, tiny
from tests.runs.store_helpers import new_run


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A run with adapters."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    return SimpleNamespace(folder=folder, logits=run_with_policies(folder, lora=True))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A run in which all weights learn."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    return SimpleNamespace(folder=folder, logits=run_with_policies(folder, lora=False))


@pytest.fixture(autouse=True)
def _no_analyses(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.install(monkeypatch)


@torch.no_grad()
def logits_of(model: torch.nn.Module) -> torch.Tensor:
    return model.eval()(PROMPT).logits


def test_weights_without_adapters_are_the_very_same(whole: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(whole.folder), "--merged", str(tmp_path / "model"), "--at", "2"]) == 0
    assert torch.equal(logits_of(AutoModelForCausalLM.from_pretrained(tmp_path / "model")), whole.logits[2])
    assert main(["export", str(whole.folder), "--adapter", str(tmp_path / "adapter")]) == 2
    assert "there is no adapter to take" in capsys.readouterr().err and not (tmp_path / "adapter").exists()


def test_the_merged_model_gives_the_checkpoints_logits(made: SimpleNamespace, tmp_path: Path) -> None:
    target = tmp_path / "home" / "model"
    assert main(["export", str(made.folder), "--merged", str(target), "--at", "2"]) == 0
    difference = (logits_of(AutoModelForCausalLM.from_pretrained(target)) - made.logits[2]).abs().max()
    assert difference <= 1e-5  # merging adds in another order
    assert (made.logits[2] - made.logits[3]).abs().max() > 1e-2
    assert AutoTokenizer.from_pretrained(target).eos_token == "<|endoftext|>"
    sampling = GenerationConfig.from_pretrained(target)
    assert (sampling.do_sample, sampling.temperature, sampling.top_k, sampling.top_p) == (True, 0.7, 5, 1.0)
    assert (sampling.eos_token_id, sampling.pad_token_id, sampling.max_new_tokens) == (1, 0, 9)
    assert [path.name for path in target.parent.iterdir()] == ["model"]
    assert str(made.folder.parent) not in "".join(path.read_text() for path in target.glob("*.json")) + (target / "README.md").read_text()


@pytest.mark.parametrize("place", ["base"])
def test_padding_is_a_token_that_the_model_has_a_row_for(place: str, tmp_path: Path) -> None:
    """Sampling feeds it to the model for answers that have ended. The tokenizer's end token is 1, its pad token is behind the last row."""
    for name in TOKENIZER:
        shutil.copyfile(ASSETS / "world" / "policy" / name, tmp_path / name)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    tokenizer.add_special_tokens({"pad_token": "<one more>"})
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / place).mkdir(exist_ok=True)
    for rows, expected in ((tokenizer.pad_token_id, 1), (tokenizer.pad_token_id + 1, tokenizer.pad_token_id)):
        (tmp_path / place / "config.json").write_text(json.dumps({"model_type": "gpt2", "vocab_size": rows}))
        write_generation(tmp_path, RunConfig())
        assert json.loads((tmp_path / "generation_config.json").read_text())["pad_token_id"] == expected
        (tmp_path / "generation_config.json").unlink()


def test_sampling_is_that_of_the_step_and_not_what_the_run_has_now(made: SimpleNamespace, tmp_path: Path) -> None:
    folder = shutil.copytree(made.folder, tmp_path / "run")
    now = RunReader(folder).config().model_dump(mode="json")
    then = {**now, "generation": {**now["generation"], "top_k": 3}}
    (paths.checkpoint_dir(folder, 1) / paths.STATE).write_text(json.dumps({"settings": then, "live": {"generation.temperature": 0.5}}))
    place = paths.snapshot_dir(folder, 2)
    place.parent.mkdir()
    shutil.move(paths.checkpoint_dir(folder, 2), place)
    manifest = json.loads((place / paths.MANIFEST).read_text())
    (place / paths.MANIFEST).write_text(json.dumps({**manifest, "settings": {**then, "generation": {"temperature": 0.25}}}))
    for step, temperature, top_k in ((1, 0.5, 3), (2, 0.25, 0), (3, 0.7, 5)):
        target = tmp_path / f"at {step}"
        assert main(["export", str(folder), "--merged", str(target), "--at", str(step)]) == 0
        written = json.loads((target / "generation_config.json").read_text())
        assert (written["temperature"], written["top_k"]) == (temperature, top_k)
        assert f"as the run did at this step: temperature {temperature}, top-k {top_k or 'off'}," in (target / "README.md").read_text()


def test_an_adapter_on_a_tied_output_layer_is_merged_into_that_layer_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logits = run_with_policies(tmp_path / "run", lora=True, steps=1, targets=("c_attn", "lm_head"))
    assert main(["export", str(tmp_path / "run"), "--merged", str(tmp_path / "model")]) == 0
    assert (logits_of(AutoModelForCausalLM.from_pretrained(tmp_path / "model")) - logits[1]).abs().max() <= 1e-5
    # A family whose files cannot hold it: what was written is read back and compared before it gets its name.
    monkeypatch.setattr(merging, "merged_for_good", lambda adapted: adapted.unload())
    monkeypatch.setattr(merging, "_rounded", lambda model, dtype: tiny(1).eval())
    capsys.readouterr()
    assert main(["export", str(tmp_path / "run"), "--merged", str(tmp_path / "other")]) == 2
    assert "read back from its file, gives logits that are" in capsys.readouterr().err and not (tmp_path / "other").exists()


def test_the_adapter_on_its_base_gives_the_checkpoints_logits(made: SimpleNamespace, tmp_path: Path) -> None:
    target = tmp_path / "adapter"
    assert main(["export", str(made.folder), "--adapter", str(target)]) == 0
    base = AutoModelForCausalLM.from_pretrained(target / "base", local_files_only=True)
    assert (logits_of(PeftModel.from_pretrained(base, target)) - made.logits[3]).abs().max() <= 1e-5
    settings = json.loads((target / "adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == "base"
    assert str(made.folder.parent) not in "".join(path.read_text() for path in target.rglob("*.json"))
    assert not (target / "value_head.safetensors").exists()


@pytest.mark.parametrize("base", ["another run's checkpoint", "the hub's cache"])
def test_a_base_that_lies_on_this_machine_travels_with_the_adapter(
    base: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plain peft loads the export where neither the run nor the base is; nothing but the model is taken of a person's folder."""
    if base == "another run's checkpoint":
        run_with_policies(tmp_path / "runs" / "first", lora=False)
        folder = paths.checkpoint_dir(tmp_path / "runs" / "first", 2) / "policy"
        expected = "step 2 of the run first"
    else:
        folder = tmp_path / "mine" / "policy"
        tiny(7).save_pretrained(folder)
        (folder / "notes.txt").write_text("private")
        (folder / "all_results.json").write_text("{}")
        (folder / "optimizer.pt").write_bytes(b"large")
        (folder / "LICENSE").write_text("terms")
        expected = "policy"
    if base == "the hub's cache":
        for file in list(folder.iterdir()):
            file.rename(tmp_path / "mine" / file.name)
            file.symlink_to(Path("..") / file.name)
    logits = run_with_policies(tmp_path / "runs" / "second", lora=True, steps=1, base=folder)
    assert main(["export", str(tmp_path / "runs" / "second"), "--adapter", str(tmp_path / "home" / "adapter")]) == 0
    (tmp_path / "runs" / "first" if base == "another run's checkpoint" else folder).rename(tmp_path / "away")
    monkeypatch.chdir(tmp_path / "home")
    names = {file.name for file in Path("adapter", "base").iterdir() if not file.is_symlink()}
    assert {"config.json", "model.safetensors"} <= names and not names & {"notes.txt", "all_results.json", "optimizer.pt"}
    assert ("LICENSE" in names) == (base != "another run's checkpoint")
    plain = AutoModelForCausalLM.from_pretrained("adapter/base", local_files_only=True)
    assert (logits_of(PeftModel.from_pretrained(plain, "adapter")) - logits[1]).abs().max() <= 1e-5
    assert json.loads(Path("adapter", "adapter_config.json").read_text())["base_model_name_or_path"] == "base"
    card = Path("adapter", "README.md").read_text()
    assert f"**Starting policy:** {expected}, in the folder `base/`\n" in card and "base_model" not in ModelCard(card).data.to_dict()
    code = card.split("```python\n")[1].split("```")[0]
    assert str(tmp_path) not in card and 'from_pretrained(f"{folder}/base")' in code
    Path("load.py").write_text(code)
    actual = runpy.run_path("load.py")  # as a reader would
    assert (logits_of(actual["model"]) - logits[1]).abs().max() <= 1e-5
    capsys.readouterr()
    assert main(["export", str(tmp_path / "runs" / "second"), "--adapter", str(tmp_path / "again")]) == 2
    assert (
        f"the base of this adapter, {folder}, is no longer there; put it back" in capsys.readouterr().err
        and not (tmp_path / "again").exists()
    )


def test_a_base_that_is_not_as_its_run_wrote_it_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_with_policies(tmp_path / "first", lora=False)
    folder = paths.checkpoint_dir(tmp_path / "first", 2) / "policy"
    run_with_policies(tmp_path / "second", lora=True, steps=1, base=folder)
    tiny(8).save_pretrained(folder)
    assert main(["export", str(tmp_path / "second"), "--adapter", str(tmp_path / "adapter")]) == 2
    assert "step-000002: model.safetensors is damaged" in capsys.readouterr().err.replace("policy/", "")
    assert not (tmp_path / "adapter").exists()


@pytest.mark.parametrize(
    ("metric", "losses", "step", "why"),
    [
        ("sft/eval_loss", {1: 1.9, 2: 1.625, 3: 1.7}, 2, "the lowest held-out loss of the kept checkpoints: 1.62 at step 2"),
        ("dpo/eval_loss", {1: 0.5, 2: 0.75}, 1, "the lowest held-out DPO loss of the kept checkpoints: 0.5 at step 1; it was not"),
    ],
)
def test_the_best_by_a_held_out_loss_is_told_as_such(metric: str, losses: dict[int, float], step: int, why: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with RunWriter(new_run(folder)) as writer:
        for number in (1, 2, 3):
            writer.commit_step(StepRecord(number, {metric: losses[number]} if number in losses else {}, []))
    for number in (1, 2, 3):
        place = paths.checkpoint_dir(folder, number)
        (place / "policy").mkdir(parents=True)
        (place / "policy" / "model.safetensors").write_bytes(b"weights")
        entry = {"bytes": 7, "sha256": sha256(b"weights").hexdigest()}
        manifest = {"format": 1, "step": number, "recorded_at": RunReader(folder).recorded_at(number), "keep_best": metric}
        (place / paths.MANIFEST).write_text(json.dumps({**manifest, "files": {"policy/model.safetensors": entry}}))
    chosen = choose(RunReader(folder), "best")
    assert chosen.step == step and why in chosen.why and "sampled" not in chosen.why


def test_the_best_checkpoint_and_those_that_there_are_not(
    made: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for wrong in ("7", "first", "-1", "1e3", "²"):
        assert main(["export", str(made.folder), "--merged", str(tmp_path / "x"), f"--at={wrong}"]) == 2
        assert "this run has: 1, 2, 3" in capsys.readouterr().err
    assert main(["export", str(made.folder), "--merged", str(tmp_path / "best"), "--at", "best"]) == 0
    # Scores 1.0, 0.5, 2.0: step 3 sampled with the policy that step 2 left.
    card = (tmp_path / "best" / "README.md").read_text()
    assert "step 2 of" in card and "2 in step 3" in card and "no step has measured the policy of step 3" in card


def test_a_snapshot_can_be_taken_by_its_step_as_the_best_and_as_the_newest(
    made: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(made.folder, tmp_path / "runs" / "run")
    for step in (2, 3):  # checkpoints of step 2 and 3 become snapshots, which hold the policy alone
        place = paths.snapshot_dir(folder, step)
        place.parent.mkdir(exist_ok=True)
        shutil.move(paths.checkpoint_dir(folder, step), place)
    for at, step in (("best", 2), ("", 3)):
        target = tmp_path / f"at-{at}"
        assert main(["export", str(folder), "--merged", str(target), *(["--at", at] if at else [])]) == 0
        assert (logits_of(AutoModelForCausalLM.from_pretrained(target)) - made.logits[step]).abs().max() <= 1e-5
    next(paths.snapshot_dir(folder, 3).glob("policy/*.safetensors")).write_bytes(b"short")
    capsys.readouterr()
    assert main(["export", str(folder), "--merged", str(tmp_path / "damaged"), "--at", "3"]) == 2
    assert "is damaged" in capsys.readouterr().err and not (tmp_path / "damaged").exists()


def test_a_damaged_checkpoint_is_refused(made: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = next((paths.checkpoint_dir(made.folder, 2) / "policy").glob("*.safetensors"))
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    try:
        assert main(["export", str(made.folder), "--merged", str(tmp_path / "x"), "--at", "2"]) == 2
    finally:
        weights.write_bytes(whole)
    assert "is damaged" in capsys.readouterr().err and list(tmp_path.iterdir()) == []


def test_the_same_export_gives_the_same_zip(made: SimpleNamespace, tmp_path: Path) -> None:
    for folder in ("one", "two"):
        assert main(["export", str(made.folder), "--merged", str(tmp_path / folder / "my model.zip")]) == 0
    first, second = (tmp_path / folder / "my model.zip" for folder in ("one", "two"))
    assert first.read_bytes() == second.read_bytes()
    with zipfile.ZipFile(first) as archive:
        names = archive.namelist()
        assert names == sorted(names) and all(name.startswith("my-model/") for name in names)
        assert {entry.date_time for entry in archive.infolist()} == {targets.LONG_AGO} and archive.testzip() is None
    assert main(["export", str(made.folder), "--merged", str(tmp_path / "both"), "--zip"]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"one", "two", "both", "both.zip"}


@pytest.mark.parametrize("name", ["..", "a/../b", "new\nline", "~home"])
def test_names_that_could_lead_out_of_a_zip(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "file").write_text("x")
    with pytest.raises(ValueError, match="cannot be put into a zip"):
        targets.write_zip(folder, name, tmp_path / "zip")
    (folder / "link").symlink_to("/etc/passwd")
    with pytest.raises(ValueError, match="link"):
        targets.write_zip(folder, "top", tmp_path / "other")


def test_nothing_is_overwritten_and_a_full_disk_is_told_before(made: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip  # noqa: E501
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("mine")
    (tmp_path / "empty").mkdir()
    assert main(["export", str(made.folder), "--merged", str(tmp_path / "taken"), "--csv", str(tmp_path / "m.csv")]) == 2
    assert "is a folder that is not empty" in capsys.readouterr().err and not (tmp_path / "m.csv").exists()
    assert main(["export", str(made.folder), "--merged", str(tmp_path / "empty")]) == 0
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    assert main(["export", str(made.folder), "--csv", str(tmp_path / "link"), "--replace"]) == 2
    monkeypatch.setattr(targets.shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    assert main(["export", str(made.folder), "--merged", str(tmp_path / "new")]) == 2
    assert "disk is too full" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"taken", "empty", "link"}


def test_the_card_is_valid_and_says_what_matters(made: SimpleNamespace, tmp_path: Path) -> None:
    assert main(["export", str(made.folder), "--merged", str(tmp_path / "model")]) == 0
    text = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    data = ModelCard(text).data.to_dict()
    assert data["library_name"] == "transformers" and data["pipeline_tag"] == "text-generation" and "base_model" not in data
    for expected in (
        "## Verdict",
        "## Limits",
        "## Citation",
        "## Answers before and after",
        "`ppo.kl_coef`",
        "curves.png",
        "Licence of the base",
    ):
        assert expected in text
    assert (tmp_path / "model" / "curves.png").read_bytes().startswith(b"\x89PNG")
    body = text.split("---", 2)[2]
    assert "<script" not in body and "${" not in body and "](javascript" not in body
    assert not any(mark in text for mark in ("\u202e", "\x00", "\ud800"))


def test_the_code_on_the_card_of_a_chat_model_writes_a_chat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_with_policies(tmp_path / "run", lora=False, steps=1, data={"chat_template": True})
    monkeypatch.chdir(tmp_path)
    assert main(["export", "run", "--merged", "model"]) == 0
    Path("model", "chat_template.jinja").write_text("{% for m in messages %}the {{ m.content }}{% endfor %}{% if add_generation_prompt %} film was{% endif %}")  # fmt: skip  # noqa: E501
    Path("code.py").write_text(Path("model", "README.md").read_text().split("```python\n")[1].split("```")[0])
    capsys.readouterr()
    runpy.run_path("code.py")
    tokenizer = AutoTokenizer.from_pretrained("model")
    expected = tokenizer.decode(tokenizer("the Your prompt film was")["input_ids"])
    assert capsys.readouterr().out.startswith(expected)


def test_the_card_of_a_run_that_is_broken_on_purpose_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.install(monkeypatch)
    run_with_policies(tmp_path / "run", lora=False, steps=1)
    expected = broken_on_purpose("critic")
    with EngineLock(tmp_path / "run"), RunWriter(tmp_path / "run") as writer:
        for _start in range(2):
            writer.event(EventRecord("warning", FAULT, expected))
        writer.set_state("finished")
    assert main(["export", str(tmp_path / "run"), "--merged", str(tmp_path / "model")]) == 0
    limits = (tmp_path / "model" / "README.md").read_text(encoding="utf-8").split("## Limits")[1]
    assert limits.count("broken on purpose") == 1 and limits.index("broken on purpose") < limits.index("It was not tested")
