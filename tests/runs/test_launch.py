import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rlhf_studio.child_process.environment import (
    PACKAGE_PARENT,
    START_FD_VARIABLE,
    child_environment,
    engine_environment,
    foreign_environment,
)
from rlhf_studio.config import Permissions, RunConfig, permissions_from_environment
from rlhf_studio.runs import launch, liveness
from rlhf_studio.runs.commands import send_command
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.errors import AlreadyRunning, NotRunning, StoreError
from rlhf_studio.runs.lab.fork import refuse_only_read
from rlhf_studio.runs.launch import _trackers, engine_command, engine_processes, force_stop, kill_engine, start_engine
from rlhf_studio.runs.liveness import StartTicket, is_alive, is_starting
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import EventRecord, Origin
from rlhf_studio.runs.status import may_force_stop
from rlhf_studio.runs.writer import RunWriter, record_end
from tests.runs.store_helpers import end, new_run, start_fake, use_fake_engine
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def test_the_command_is_the_one_a_person_can_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "a run; rm -rf $(x)"
    assert engine_command(folder) == [sys.executable, "-m", "rlhf_studio", "train", str(folder.resolve())]
    assert engine_command(folder, "resume")[3:] == ["resume", str(folder.resolve())]
    assert engine_command(folder, "from-start")[3:] == ["resume", str(folder.resolve()), "--from-start"]
    monkeypatch.chdir(tmp_path)
    assert engine_command(Path("-o"))[-1] == str(tmp_path.resolve() / "-o")  # never an option


SECRETS_AND_OTHERS = """
    HF_TOKEN HF_TOKEN_PATH HUGGING_FACE_HUB_TOKEN OPENAI_API_KEY ANTHROPIC_API_KEY WANDB_API_KEY my_api_key OAUTH_CLIENT_SECRET
    SECRET AWS_SECRET_ACCESS_KEY AWS_ACCESS_KEY_ID AWS_SESSION_TOKEN GITHUB_TOKEN DB_PASSWORD PGPASSWORD SSH_PRIVATE_KEY
    GOOGLE_APPLICATION_CREDENTIALS GPG_PASSPHRASE SSH_AUTH_SOCK RLHF_STUDIO_OPERATOR_TOKEN SESSION_COOKIE RLHF_STUDIO_TOKEN
    CONDA_TOKEN WANDB_PROJECT TRACKIO_PROJECT HF_PASSWORD
    SLURM_JWT SLURM_SPANK_VAULT SLURM_JOB_COMMENT HF_PAT HF_JWT HUGGINGFACE_KEY CONDA_AUTH CONDA_CHANNEL_PW HF_APITOKEN HF_HUB_KEY_2
    TRANSFORMERS_APIKEY HF_ACCESSKEY hf_pat RLHF_STUDIO_AUTH HF_OAUTH_CODE I_MPI_CREDS HF_BEARER CONDA_PWD TORCH_LOGIN HF_TOKEN2 PYTHON_KEYS
    DATABASE_URL MY_PASS REDIS_URL SENTRY_DSN PGPASS SECRETARY KEYBOARD NETRC KUBECONFIG DOCKER_HOST XPATH MY_PATH PATH_TO_KEY
    --
    PATH HOME LANG LC_ALL TZ TMPDIR XDG_CACHE_HOME MPLCONFIGDIR PYTHONHASHSEED VIRTUAL_ENV CONDA_PREFIX LD_LIBRARY_PATH LD_PRELOAD CC
    TORCH_HOME TORCHINDUCTOR_CACHE_DIR PYTORCH_CUDA_ALLOC_CONF TRITON_CACHE_DIR CUDA_VISIBLE_DEVICES CUDA_HOME NVIDIA_VISIBLE_DEVICES
    CUBLAS_WORKSPACE_CONFIG ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES HSA_OVERRIDE_GFX_VERSION NCCL_DEBUG GLOO_SOCKET_IFNAME
    OMP_NUM_THREADS MKL_NUM_THREADS TOKENIZERS_PARALLELISM ACCELERATE_MIXED_PRECISION FSDP_VERSION RANK WORLD_SIZE MASTER_ADDR
    TORCHELASTIC_RUN_ID SLURM_PROCID SLURM_LOCALID SLURM_NTASKS SLURM_JOB_ID SLURM_JOBID SLURM_JOB_NODELIST SLURM_NODEID SLURM_STEP_ID
    SLURM_CPUS_PER_TASK SLURM_GPUS_ON_NODE SLURM_NNODES SLURM_LAUNCH_NODE_IPADDR NCCL_IB_PKEY CONDA_DEFAULT_ENV CONDA_PREFIX_1 PWD LOGNAME
    OMPI_COMM_WORLD_RANK PMI_RANK HF_HOME HF_HUB_OFFLINE HF_ENDPOINT TRANSFORMERS_CACHE
    HTTPS_PROXY https_proxy NO_PROXY SSL_CERT_FILE REQUESTS_CA_BUNDLE RLHF_STUDIO_WORKSPACE
"""
SECRET, HARMLESS = (part.split() for part in SECRETS_AND_OTHERS.split("--"))


def test_only_what_is_needed_goes_to_the_engine(tmp_path: Path):
    environment = dict.fromkeys([*SECRET, *HARMLESS], "value") | {START_FD_VARIABLE: "7"}
    variables = engine_environment(environment, tmp_path / "run-one")
    assert not set(SECRET) & set(variables) and set(HARMLESS) <= set(variables)
    assert variables["PYTHONUNBUFFERED"] == "1" and variables["HF_HUB_DISABLE_IMPLICIT_TOKEN"] == "1"
    assert variables["RLHF_STUDIO_RUN"] == "run-one" and START_FD_VARIABLE not in variables
    assert (Path(variables["PYTHONPATH"]) / "rlhf_studio" / "__init__.py").is_file()
    with_token = engine_environment({**environment, "PYTHONPATH": "/mine"}, tmp_path, keep_hub_token=True)
    assert with_token["HF_TOKEN"] == "value" and "OPENAI_API_KEY" not in with_token and "HF_HUB_DISABLE_IMPLICIT_TOKEN" not in with_token
    assert with_token["PYTHONPATH"].split(os.pathsep)[1] == "/mine"


def test_a_persons_own_code_sees_the_same_list_without_what_is_the_engines():
    """Whoever started the engine: from a shell it has the whole environment."""
    environment = dict.fromkeys([*SECRET, *HARMLESS], "value") | {"HF_TOKEN": "t"}
    environment |= {
        "HTTPS_PROXY": "http://me:pa%40ss@proxy.example:3128/",
        "http_proxy": "me:pass@proxy.example:3128",
        "ALL_PROXY": "socks5://proxy.example:1080",
        "HF_ENDPOINT": "https://me@mirror.example/hub",
    }
    variables = foreign_environment(environment)
    assert not set(SECRET) & set(variables) and set(HARMLESS) <= set(variables) and variables["HF_HUB_DISABLE_IMPLICIT_TOKEN"] == "1"
    assert variables["HTTPS_PROXY"] == "http://proxy.example:3128/" and variables["http_proxy"] == "proxy.example:3128"
    assert variables["ALL_PROXY"] == "socks5://proxy.example:1080" and variables["HF_ENDPOINT"] == "https://mirror.example/hub"
    assert child_environment(environment)["HTTPS_PROXY"] == environment["HTTPS_PROXY"]  # our own process must reach the hub


def test_a_tracker_keeps_its_own_key_and_no_other(tmp_path: Path):
    environment = {"WANDB_API_KEY": "w", "WANDB_PROJECT": "p", "TRACKIO_WRITE_TOKEN": "t", "OPENAI_API_KEY": "o"}
    for trackers, expected in [
        ([], set()),
        (["wandb"], {"WANDB_API_KEY", "WANDB_PROJECT"}),
        (["trackio", "tensorboard"], {"TRACKIO_WRITE_TOKEN"}),
    ]:
        assert set(environment) & set(engine_environment(environment, tmp_path, trackers=trackers)) == expected
    assert "WANDB_API_KEY" not in engine_environment({}, tmp_path, trackers=["wandb"])


def test_the_trackers_of_a_run_are_read_from_its_configuration(tmp_path: Path):
    create_run(tmp_path / "run", RunConfig.model_validate({"engine": {"report_to": "wandb"}}), name="run")
    assert _trackers(tmp_path / "run") == ["wandb"]
    (tmp_path / "run" / "config.yaml").write_text("nonsense: 1")
    assert _trackers(tmp_path / "run") == _trackers(tmp_path / "none") == []


def test_an_engine_started_by_the_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    use_fake_engine(monkeypatch, "hold")
    monkeypatch.setenv("OPENAI_API_KEY", "canary-value")
    origin = tmp_path / "origin"
    origin.mkdir()
    monkeypatch.chdir(origin)
    run, other = new_run(tmp_path / "run"), new_run(tmp_path / "other" / "run")  # told apart, though of one name
    (run / "engine.log").write_text("earlier\n")
    monkeypatch.chdir(tmp_path)
    allowed = Permissions(("/rewards.py",), {"judge": "http://127.0.0.1/canary"})
    engine = start_engine(run, permissions=allowed)
    try:
        wait_until(lambda: RunReader(run).status().state == "running")
        assert not is_starting(run)  # the ticket was handed on and given up
        assert os.getsid(engine.pid) == engine.pid != os.getsid(0)
        process = Path(f"/proc/{engine.pid}")
        assert os.readlink(process / "cwd") == str(origin) and os.readlink(process / "fd/0") == "/dev/null"
        assert os.readlink(process / "fd/1") == os.readlink(process / "fd/2") == str(run / "engine.log")
        variables = dict(pair.split("=", 1) for pair in (process / "environ").read_text().split("\0") if pair)
        assert "canary-value" not in variables.values() and permissions_from_environment(variables) == allowed
        assert b"canary" not in (process / "cmdline").read_bytes()  # everyone may list processes
        assert not any("canary" in path.read_text(errors="replace") for path in run.iterdir() if path.is_file())
        assert engine_processes(run) == [engine.pid] and engine_processes(other) == []
        assert RunReader(run).log_tail() == "earlier\n"
        send_command(run, "stop")
        assert engine.wait(20) == 3 and engine_processes(run) == [] and RunReader(run).status().state == "stopped"
    finally:
        end(engine)
    shutil.rmtree(origin)  # the folder it was created from may be gone; and it may do again what the app allows now
    engine = start_engine(run, "resume", permissions=allowed)
    wait_until(lambda: RunReader(run).status().state == "running")
    assert b"127.0.0.1/canary" in Path(f"/proc/{engine.pid}/environ").read_bytes()
    end(engine)


def test_a_start_that_is_not_possible(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(StoreError, match="does not exist"):
        start_engine(tmp_path / "nowhere")
    (run / "engine.log").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError):
        start_engine(run)
    assert not (tmp_path / "elsewhere").exists()
    (run / "engine.log").unlink()
    monkeypatch.setattr(launch, "engine_command", lambda folder, mode: ["/no/such/program"])
    with pytest.raises(StoreError):
        start_engine(run)
    assert not is_starting(run)  # nothing is left taken
    ticket = StartTicket(run)
    ticket.take()
    with pytest.raises(AlreadyRunning):
        start_engine(run)
    with pytest.raises(StoreError):
        start_engine(run, ticket=ticket)
    assert is_starting(run)  # the caller's ticket stays the caller's
    ticket.close()


# --- ending it by force ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["deaf", "forked"])
def test_force_stop_ends_everything_and_nobody_else_and_puts_it_on_record(run: Path, monkeypatch: pytest.MonkeyPatch, mode: str):
    use_fake_engine(monkeypatch, mode)
    bystander = start_fake(new_run(run.parent / "other"), "hold")
    engine = start_engine(run)
    wait_until(lambda: RunReader(run).status().step >= 2 and len(engine_processes(run)) == (2 if mode == "forked" else 1))
    if mode == "deaf":
        os.kill(engine.pid, signal.SIGSTOP)  # and suspended, too
    checkpoint = run / "checkpoints" / "step-000001"
    checkpoint.mkdir()
    (checkpoint / "manifest.json").write_text('{"step": 1}')
    text = force_stop(run, "a tester", grace=0.1)
    assert text == "Ended by force by a tester. A resume goes on from the newest whole checkpoint (step 1, unless it is damaged)."
    assert engine.wait(20) < 0 and engine_processes(run) == [] and not is_alive(run)
    status = RunReader(run).status()
    assert (status.state, status.cause) == ("stopped", "") and status.step >= 2 and status.ended_at is not None
    assert [(event.kind, event.level, event.text) for event in RunReader(run).newest_events()][-1] == ("stop", "warning", text)
    assert bystander.poll() is None
    end(bystander)


def test_force_stop_of_what_ends_by_itself_or_does_not_run(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(NotRunning, match="nothing to end"):
        force_stop(run, "a tester")
    with pytest.raises(StoreError, match="There is no run"):
        force_stop(tmp_path / "nowhere", "a tester")
    ticket = StartTicket(run)
    ticket.take()
    with pytest.raises(StoreError, match="just being started"):
        force_stop(run, "a tester")
    ticket.close()
    before = RunReader(run).stored()
    with liveness.EngineLock(run), RunWriter(run) as writer:
        writer.set_state("finished")
    with liveness.EngineLock(run):
        assert record_end(run, EventRecord("warning", "stop", "too late")) is False
    assert RunReader(run).status().state == "finished" and RunReader(run).newest_events() == [] and before[0] == "queued"


def test_orphans_of_a_dead_engine_are_found(run: Path, monkeypatch: pytest.MonkeyPatch):
    use_fake_engine(monkeypatch, "forked")
    engine = start_engine(run)
    wait_until(lambda: len(engine_processes(run)) == 2)
    end(engine)
    assert not is_alive(run) and len(engine_processes(run)) == 1
    assert kill_engine(run, grace=5.0) is True
    assert engine_processes(run) == []


def test_an_engine_from_a_shell_is_killed_alone(run: Path):
    # It shares its session with others, here with this very test: its group must not be killed.
    engine = subprocess.Popen([sys.executable, str(PACKAGE_PARENT / "tests" / "runs" / "fake_engine.py"), "train", str(run)],
                              env={**os.environ, "PYTHONPATH": str(PACKAGE_PARENT), "RLHF_STUDIO_FAKE_ENGINE": "deaf"})  # fmt: skip
    wait_until(lambda: RunReader(run).status().state == "running")
    assert kill_engine(run, grace=0.1) is True
    assert engine.wait(20) == -signal.SIGKILL


STARTS_AND_IS_SUSPENDED = """
import os, signal, sys
from rlhf_studio.runs.liveness import announce_start
announce_start(sys.argv[1])
os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_an_engine_from_a_shell_that_was_suspended_before_it_took_its_lock(run: Path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RLHF_STUDIO")}
    environment["PYTHONPATH"] = str(PACKAGE_PARENT)
    engine = subprocess.Popen([sys.executable, "-c", STARTS_AND_IS_SUSPENDED, str(run)], env=environment)
    try:
        os.waitid(os.P_PID, engine.pid, os.WSTOPPED | os.WNOWAIT)
        assert is_starting(run) and not is_alive(run) and engine_processes(run) == [engine.pid]
        assert force_stop(run, "a tester", grace=0.1).startswith("Ended by force by a tester.")
        assert engine.wait(20) == -signal.SIGKILL
    finally:
        end(engine)
    assert engine_processes(run) == [] and not is_starting(run) and RunReader(run).status().state == "stopped"


def test_the_start_ticket_names_nobody_but_the_process_that_wrote_it(run: Path):
    liveness.announce_start(run)
    ticket_text = (run / liveness.START_LOCK).read_text()
    assert liveness.starter_pid(run) == os.getpid()
    liveness.release_ticket(run)
    assert liveness.starter_pid(run) is None  # nobody holds it
    ticket = StartTicket(run)
    ticket.take()  # by the app, after an engine that was killed
    assert liveness.starter_pid(run) is None
    pid, began = ticket_text.split()
    for text in (f"{pid} {float(began) - 60}", f"{pid} x", f"{2**70} {began}", f"{2**22 + 1} {began}", f"0 {began}", "\udcff", pid):
        (run / liveness.START_LOCK).write_bytes(text.encode("utf-8", "surrogateescape"))
        assert liveness.starter_pid(run) is None, text
    (run / liveness.START_LOCK).write_text(ticket_text)
    assert liveness.starter_pid(run) == os.getpid()
    ticket.close()


def test_an_engine_that_will_not_go(run: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(launch, "engine_processes", lambda folder: [2**22 + 1])  # no such process, but it is always found
    monkeypatch.setattr(launch, "_wait_until_gone", lambda folder, seconds: False)
    with pytest.raises(StoreError, match="could not be ended; the system may be waiting"):
        kill_engine(run)

    def forbidden(pid: int, number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "kill", forbidden)
    with pytest.raises(StoreError, match="could not be ended: .*not permitted"):
        kill_engine(run)


HOLDS_ITS_OWN_RUN = """
import sys
from pathlib import Path
from rlhf_studio.runs.liveness import EngineLock
EngineLock(Path(sys.argv[1])).acquire()
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_persons_own_program_is_never_ended(tmp_path: Path):
    """Not when it is asked to stop and does not: it is a notebook, perhaps, with hours of work in it. The sentence says what to do."""
    folder = tmp_path / "runs" / "mine"
    create_run(folder, RunConfig(), name="mine", state="running", origin=Origin(program="a notebook"))
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE_PARENT)}
    command = [sys.executable, "-c", HOLDS_ITS_OWN_RUN, str(folder)]
    program = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert program.stdout is not None and program.stdout.readline() == b"ready\n" and is_alive(folder)
        with pytest.raises(StoreError, match=r"not ours to end \(a notebook\).*interrupt the notebook"):
            force_stop(folder, "an operator")
        unanswered = replace(RunReader(folder).status(), stop_asked_age=60.0)
        assert not may_force_stop(unanswered) and may_force_stop(replace(unanswered, origin=Origin()))
        with pytest.raises(StoreError, match="was made by a notebook"):
            refuse_only_read(RunReader(folder))
        assert program.poll() is None
    finally:
        program.communicate()
    assert program.returncode == 0
