"""What a helper sees of the environment: never more than the list that is written out here."""

from __future__ import annotations

import pytest

from rlhf_studio.child_process.environment import child_environment, foreign_environment, helper_environment
from rlhf_studio.config import permissions_from_flags

ALONE = {
    *("PATH", "HOME", "USER", "USERPROFILE", "SYSTEMROOT", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "TEMP", "TMP"),
    *("LD_LIBRARY_PATH", "VIRTUAL_ENV", "PYTHONHOME", "PYTHONUTF8", "PYTHONIOENCODING", "PYTHONPATH", "RLHF_STUDIO_RUN_DIR"),
}
HUB = {
    *("HF_HOME", "HF_TOKEN", "HF_TOKEN_PATH", "HF_STORED_TOKENS_PATH", "HF_ENDPOINT", "HF_MODULES_CACHE", "HF_ASSETS_CACHE"),
    *("HF_UPDATE_DOWNLOAD_COUNTS", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_HUB_TOKEN", "HUGGINGFACE_HUB_CACHE", "HF_HUB_CACHE"),
    *("HF_HUB_OFFLINE", "HF_HUB_VERBOSITY", "HF_HUB_ETAG_TIMEOUT", "HF_HUB_DOWNLOAD_TIMEOUT", "HF_HUB_DISABLE_XET"),
    *("HF_HUB_DISABLE_IMPLICIT_TOKEN", "HF_HUB_ENABLE_HF_TRANSFER", "HF_XET_CACHE", "HF_DATASETS_CACHE", "HUGGINGFACE_ASSETS_CACHE"),
    *("XDG_CACHE_HOME", "HTTPS_PROXY", "http_proxy", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
}
NEVER = {
    *("LD_PRELOAD", "LD_AUDIT", "LD_DEBUG", "DYLD_INSERT_LIBRARIES", "PYTHONSTARTUP", "PYTHONINSPECT", "PYTHONWARNINGS", "CONDA_PREFIX"),
    *("XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "MALLOC_CHECK_", "GLIBC_TUNABLES", "ARROW_IO_THREADS", "SHELL", "PWD", "LOGNAME", "TERM"),
    *("HOSTNAME", "RLHF_STUDIO_RUN", "RLHF_STUDIO_REWARD_PERMISSIONS", "RLHF_STUDIO_WITHHELD", "HF_ANYTHING", "HF_PAT"),
    *("HF_DEBUG", "HUGGINGFACE_ANYTHING", "TRANSFORMERS_CACHE", "SAFETENSORS_FAST_GPU", "USE_TORCH", "FTP_PROXY", "DATABASE_URL"),
}


def test_no_more_than_the_list() -> None:
    probes = dict.fromkeys(ALONE | HUB | NEVER, "x")
    assert set(helper_environment(probes, network=False)) == ALONE
    assert set(helper_environment(probes, network=True)) == ALONE | HUB


@pytest.mark.parametrize("variable", ["RLHF_STUDIO_JUDGE", "LC_JUDGE", "HF_TOKEN", "HOME"])
def test_the_variable_of_a_key_is_withheld_whatever_its_name(variable: str) -> None:
    environment = {variable: "s3cret", "PATH": "/bin"}
    permissions_from_flags([], ["judge=https://x"], [f"judge={variable}"], environment)
    for variables in (environment, child_environment(environment, keep_hub_token=True)):  # the engine starts such processes too
        assert "s3cret" not in foreign_environment(variables).values()
        assert foreign_environment(variables)["PATH"] == "/bin"
        for network in (False, True):
            assert "s3cret" not in helper_environment(variables, network=network).values()
