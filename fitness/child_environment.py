"""What a child process may see of the environment: paths, locale, CUDA's settings. Never a key."""

from collections.abc import Mapping

_NAMES = frozenset({
    "HOME", "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "LOGNAME", "PATH", "PYTHONHASHSEED", "PYTHONPATH", "TEMP", "TMP",
    "TMPDIR", "TZ", "USER", "VIRTUAL_ENV", "XDG_CACHE_HOME",
})  # fmt: skip
_PREFIXES = ("CUDA_", "CUPY_", "LC_", "MKL_", "NVIDIA_", "OMP_")
_SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSWORD")  # CUDA_REGISTRY_TOKEN has a listed prefix and is still one


def listed_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Those variables of an environment that are listed by name or prefix, less any that sounds like a secret."""
    return {
        name: value
        for name, value in environment.items()
        if name in _NAMES or (name.startswith(_PREFIXES) and not any(word in name.upper() for word in _SECRET_WORDS))
    }
