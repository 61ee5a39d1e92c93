"""What the processes that this program starts may see of its environment: a list of what they need, and nothing else.

A variable with an unknown name stays out, because nobody can tell whether ``DATABASE_URL`` holds a password. There is one list,
:data:`NEEDED`, for processes that work on a run, a much shorter one for helpers, and one function for each kind of child, from the one
that sees most to the one that sees least: :func:`engine_environment`, :func:`child_environment`, :func:`foreign_environment`,
:func:`helper_environment`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from rlhf_studio.config import NOTHING_ALLOWED, Permissions
from rlhf_studio.config.permissions import VARIABLE as PERMISSIONS_VARIABLE
from rlhf_studio.config.permissions import WITHHELD_VARIABLE, withheld_names
from rlhf_studio.language import ENGLISH, LANG_VARIABLE

RUN_VARIABLE = "RLHF_STUDIO_RUN"
FOLDER_VARIABLE = "RLHF_STUDIO_RUN_DIR"
"""Marks every process that belongs to a run, so that it is found when the run is ended by force."""
START_FD_VARIABLE = "RLHF_STUDIO_START_FD"
"""The descriptor of the start ticket that an engine inherits (:mod:`rlhf_studio.runs.liveness`)."""
PACKAGE_PARENT = Path(__file__).resolve().parents[2]
NO_HUB_TOKEN = "HF_HUB_DISABLE_IMPLICIT_TOKEN"
"""Tells the hub's client to use neither a token of the environment nor one that was saved by logging in."""

# Which processes there are, where they run, and what of the machine is theirs. SLURM_JWT is a credential, and plug-ins add more.
_SLURM = (
    r"SLURM_(JOB_?ID|JOB_NAME|JOB_(NODELIST|NUM_NODES|CPUS_PER_NODE|GPUS|PARTITION)|ARRAY_(JOB|TASK)_ID|NODELIST|NNODES|NODEID|PROCID|LOCALID)"
    r"|SLURM_(STEP_?ID|STEP_(NODELIST|NUM_NODES|NUM_TASKS|TASKS_PER_NODE|GPUS)|NTASKS(_PER_NODE)?|NPROCS|TASKS_PER_NODE|SUBMIT_(DIR|HOST))"
    r"|SLURM_(CPUS_(PER_TASK|ON_NODE)|GPUS(_(PER_NODE|PER_TASK|ON_NODE))?|MEM_PER_(NODE|CPU|GPU)|LAUNCH_NODE_IPADDR|SRUN_COMM_(HOST|PORT))"
)

NEEDED = {
    "the system": r"PATH|HOME|USER|LOGNAME|USERNAME|USERPROFILE|SYSTEMROOT|SHELL|HOSTNAME|PWD|TERM|COLUMNS|LINES|NO_COLOR|FORCE_COLOR",
    "language and time": r"LANG|LANGUAGE|LC_\w+|TZ|TZDIR",
    "folders for temporary files and caches": r"TMPDIR|TEMP|TMP|XDG_\w+|MPLCONFIGDIR|MPLBACKEND|TIKTOKEN_CACHE_DIR",
    "Python": r"PYTHON\w+|VIRTUAL_ENV|CONDA_(PREFIX\w*|DEFAULT_ENV|EXE|PYTHON_EXE|SHLVL)",
    "shared libraries and memory": r"LD_\w+|DYLD_\w+|MALLOC_\w+|GLIBC_TUNABLES|ARROW_\w+",
    "compilers that torch calls": r"CC|CXX|CPATH|C_INCLUDE_PATH|CPLUS_INCLUDE_PATH|LIBRARY_PATH|MAX_JOBS",
    "torch": r"TORCH\w*|PYTORCH_\w+|ATEN_\w+|TRITON_\w+|BITSANDBYTES_\w+|BNB_\w+|FLASH_ATTENTION_\w+",
    "GPUs": r"(CUDA|CUBLAS|ROCM|HIP)\w*|(CUDNN|NVIDIA|NVTE|ROCR|ROCBLAS|HSA|MIOPEN|AMD|GPU|ZE|SYCL)_\w+",
    "processes that talk to each other": r"NCCL_\w+|RCCL_\w+|GLOO_\w+|TP_SOCKET_IFNAME|UCX_\w+|UCC_\w+|FI_\w+",
    "threads": r"(OMP|GOMP|KMP|MKL|OPENBLAS|BLIS|VECLIB|NUMEXPR|DNNL|ONEDNN|RAYON|TOKENIZERS)_\w+",
    "accelerate and torchrun": r"(ACCELERATE|FSDP|GROUP|ROLE)_\w+|(LOCAL_|NODE_)?RANK|(LOCAL_)?WORLD_SIZE|MASTER_(ADDR|PORT)",
    "Slurm and MPI": _SLURM + r"|OMPI_\w+|PMI_\w+|PMIX_\w+|MV2_\w+|I_MPI_\w+|MPI_\w+",
    "transformers, the Hugging Face hub and datasets": r"(HF|HUGGINGFACE|TRANSFORMERS|SAFETENSORS)_\w+|USE_(TORCH|TF|JAX)|DO_NOT_TRACK",
    "proxies and certificates": r"(HTTPS?|FTP|ALL|NO)_PROXY|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE",
    "this program": r"RLHF_STUDIO_\w+",
}
"""What is passed on, by purpose: whole names, large and small letters alike. docs/rewards.md tells people."""

_NEEDED = re.compile("|".join(NEEDED.values()), re.IGNORECASE)
# On top of the lists: HF_PAT and RLHF_STUDIO_TOKEN match a family above and are secrets all the same. PKEY is a number of InfiniBand.
_SECRET = re.compile(
    r"(^|_)([A-Z]*TOKENS?|(?!PKEY)[A-Z]*KEYS?|SECRETS?|CREDENTIALS?|CREDS?|JWT|PAT|O?AUTH|AUTHORIZATION|BEARER|COOKIES?|PASS|LOGIN)\d*(_|$)"
    r"|_PWD(_|$)|PASSWORD|PASSWD|PASSPHRASE",
    re.IGNORECASE,
)
_HUB_TOKENS = ("HF_TOKEN", "HF_TOKEN_PATH", "HF_STORED_TOKENS_PATH", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_HUB_TOKEN")
# What a helper sees, name by name: it opens files that nobody has checked, so no variable that makes Python or the system load something.
_OF_HELPERS = (
    r"PATH|HOME|USER|USERPROFILE|SYSTEMROOT|LANG|LANGUAGE|LC_\w+|TZ|TMPDIR|TEMP|TMP|LD_LIBRARY_PATH|VIRTUAL_ENV|"
    r"PYTHON(HOME|UTF8|IOENCODING)"
)
_OF_THE_HUB = (
    r"HF_(HOME|ENDPOINT|MODULES_CACHE|ASSETS_CACHE|UPDATE_DOWNLOAD_COUNTS)|HUGGING_?FACE_HUB_CACHE|HUGGINGFACE_ASSETS_CACHE|"
    r"HF_HUB_(CACHE|OFFLINE|VERBOSITY|(ETAG|DOWNLOAD)_TIMEOUT|DISABLE_\w+|ENABLE_\w+)|HF_XET_\w+|HF_DATASETS_\w+|"
    r"XDG_CACHE_HOME|(HTTPS?|ALL|NO)_PROXY|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE"
)
_OF_TRACKERS = {"wandb": r"WANDB_\w+", "trackio": r"TRACKIO_\w+", "tensorboard": r"TENSORBOARD_\w+"}
_USER_IN_ADDRESS = re.compile(r"(?<=://)[^/@\s]*@|^[^/@\s:]+:[^/@\s]*@(?=[\w.-]+:\d+/?$)")


def engine_environment(
    environment: Mapping[str, str],
    run_dir: Path,
    *,
    keep_hub_token: bool = False,
    permissions: Permissions = NOTHING_ALLOWED,
    trackers: Sequence[str] = (),
) -> dict[str, str]:
    """What the engine may see of the app's environment, and which run it works on; see :func:`child_environment`.

    ``trackers`` are those that the run reports to: of each, its own variables are kept, its key among them.
    """
    result = child_environment(environment, keep_hub_token=keep_hub_token, permissions=permissions)
    own = re.compile("|".join(_OF_TRACKERS[name] for name in trackers if name in _OF_TRACKERS) or r"(?!)")
    result |= {name: value for name, value in environment.items() if own.fullmatch(name)}
    result[RUN_VARIABLE] = Path(run_dir).resolve().name
    result[FOLDER_VARIABLE] = str(Path(run_dir).resolve())
    return result


def child_environment(
    environment: Mapping[str, str], *, keep_hub_token: bool = False, permissions: Permissions = NOTHING_ALLOWED
) -> dict[str, str]:
    """What a process of ours may see of the app's environment: what :data:`NEEDED` names, and where to find this package.

    ``keep_hub_token`` leaves the Hugging Face token, for runs on gated or private models. Without it the process is also told
    not to use a token that was saved on this machine by logging in. ``permissions`` are what the app's own start allowed.
    A proxy's address stays whole, its password too: without it our own process could not reach the hub.
    """
    result = _needed(environment)
    if keep_hub_token:
        result |= {name: environment[name] for name in _HUB_TOKENS if name in environment}
    else:
        result[NO_HUB_TOKEN] = "1"
    result.pop(START_FD_VARIABLE, None)
    result["PYTHONPATH"] = _python_path(environment)
    result["PYTHONUNBUFFERED"] = "1"
    result[LANG_VARIABLE] = ENGLISH  # what it says and stores is for readers of all languages, see language.told
    result.pop(PERMISSIONS_VARIABLE, None)
    if allowed := permissions.as_text():
        result[PERMISSIONS_VARIABLE] = allowed
    return result


def foreign_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What a person's own code may see of the engine's environment, whoever started the engine.

    That is what :data:`NEEDED` names, without what was given to the engine alone: the hub token, the trackers' variables, the
    addresses and keys of scoring servers, and the user names and passwords inside the addresses of proxies and mirrors.
    """
    withheld = {PERMISSIONS_VARIABLE, WITHHELD_VARIABLE, *withheld_names(environment)}
    result = {name: _USER_IN_ADDRESS.sub("", value) for name, value in _needed(environment).items() if name not in withheld}
    return result | {NO_HUB_TOKEN: "1"}


def helper_environment(environment: Mapping[str, str], *, network: bool) -> dict[str, str]:
    """What a helper may see that opens unchecked files: what Python needs, and the folder of the run that it works for.

    ``network`` adds what is needed to reach the hub: proxies, the hub's settings and the token. The run's folder is there so that ending a
    run by force finds its helpers: each of them leads its own session.
    """
    allowed = f"{_OF_HELPERS}|{_OF_THE_HUB}" if network else _OF_HELPERS
    by_name = {FOLDER_VARIABLE, *((*_HUB_TOKENS, NO_HUB_TOKEN) if network else ())}
    result = _needed(environment, re.compile(allowed, re.IGNORECASE)) | {name: environment[name] for name in by_name if name in environment}
    for name in withheld_names(environment):
        result.pop(name, None)
    return result | {"PYTHONPATH": _python_path(environment)}


def _needed(environment: Mapping[str, str], names: re.Pattern[str] = _NEEDED) -> dict[str, str]:
    return {name: value for name, value in environment.items() if names.fullmatch(name) and not _SECRET.search(name)}


def _python_path(environment: Mapping[str, str]) -> str:
    """Where a child finds this package, whatever folder it runs in."""
    earlier = environment.get("PYTHONPATH")
    return f"{PACKAGE_PARENT}{os.pathsep}{earlier}" if earlier else str(PACKAGE_PARENT)
