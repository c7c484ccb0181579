"""Saving a config: it reaches the disk and is read back, or it is refused with the reason and nothing is lost."""

import ctypes
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dflash_lab.config import files
from dflash_lab.config.files import changed_on_disk, leads_out, overlay, read, restore, save, versions
from dflash_lab.errors import LabError
from tests.config import published

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534


@pytest.fixture
def folder(tmp_path):
    raw = published.raw("Qwen3.6-27B-DFlash")
    (tmp_path / "config.json").write_text(json.dumps(raw, indent=2) + "\n")
    return tmp_path


def edited(file):
    return file.raw | {"block_size": 8}


def leftovers(folder: Path) -> list[str]:
    """Files a refused save may not leave."""
    return [str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() and p.name != "config.json"]


def test_a_save_is_on_disk_and_changes_only_the_edited_line(folder):
    file = read(folder)
    saved = save(file, edited(file))
    before, after = file.data.decode().splitlines(), (folder / "config.json").read_text().splitlines()
    assert [line for line in after if line not in before] == ['  "block_size": 8,']
    assert saved.file == read(folder) and saved.file.raw["block_size"] == 8
    assert saved.file.sha256 != file.sha256 and not changed_on_disk(saved.file)


@pytest.mark.parametrize("indent", [None, 2, 4])
@pytest.mark.parametrize("end", ["", "\n"])
def test_a_save_keeps_the_files_own_layout(tmp_path, indent, end):
    text = json.dumps({"a": "é", "b": {"c": 1e-06}}, indent=indent, ensure_ascii=False) + end
    (tmp_path / "config.json").write_text(text)
    file = read(tmp_path)
    save(file, {"a": "é", "b": {"c": 2}})
    assert (tmp_path / "config.json").read_text() == text.replace("1e-06", "2")


def test_saving_an_unedited_config_writes_nothing(folder):
    file = read(folder)
    saved = save(file, file.raw)
    assert saved.previous is None and saved.file == file and not versions(folder / "config.json")


def test_one_and_true_are_different_values_to_a_save(folder):
    file = read(folder)
    assert save(file, file.raw | {"use_sliding_window": 1}).file.data != file.data


def test_every_version_is_kept_and_can_be_restored_byte_for_byte(folder):
    first = read(folder)
    second = save(first, edited(first)).file
    third = save(second, first.raw | {"block_size": 4}).file
    kept = versions(folder / "config.json")
    assert [version.sha256 for version in kept] == [second.sha256, first.sha256]
    back = restore(third, kept[-1]).file
    assert back.data == first.data and len(versions(folder / "config.json")) == 3


def test_a_change_behind_our_back_is_noticed_and_refused(folder):
    file = read(folder)
    (folder / "config.json").write_text('{"theirs": 1}')
    assert "changed" in changed_on_disk(file)
    with pytest.raises(LabError, match="changed since it was read"):
        save(file, edited(file))
    assert read(folder).raw == {"theirs": 1} and not leftovers(folder)


def test_a_touched_file_with_the_same_content_is_unchanged(folder):
    file = read(folder)
    os.utime(file.path)
    assert not changed_on_disk(file) and save(file, edited(file)).previous


def test_a_deleted_file_is_refused_not_recreated(folder):
    file = read(folder)
    file.path.unlink()
    with pytest.raises(LabError, match="cannot be read"):
        save(file, edited(file))
    assert not file.path.exists()


def test_a_write_that_does_not_stick_is_an_error_with_the_fields(folder, monkeypatch):
    file = read(folder)
    replace = os.replace

    def undone(source, target):
        replace(source, target)
        if Path(target) == file.path:
            Path(target).write_bytes(file.data)  # another program puts its own content back

    monkeypatch.setattr(files.os, "replace", undone)
    with pytest.raises(LabError, match="block_size"):
        save(file, edited(file))


def run_save(folder: Path, before: str = "") -> subprocess.CompletedProcess[str]:
    """A save in a process of its own, so that it can give up rights or room."""
    code = f"""
import os, resource
from dflash_lab.config.files import read, save
from dflash_lab.errors import LabError
file = read({str(folder)!r})
{before}
try:
    save(file, file.raw | {{"block_size": 8, "long": "x" * 9000}})
except LabError as error:
    print(error)
"""
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )


@pytest.mark.parametrize("locked", ["folder", "file"])
def test_a_read_only_folder_or_file_is_refused_and_nothing_is_lost(folder, locked):
    data = (folder / "config.json").read_bytes()
    (folder if locked == "folder" else folder / "config.json").chmod(0o555)
    lowered = f"os.setgid({NOBODY}); os.setuid({NOBODY})" if os.getuid() == 0 else ""
    for parent in folder.parents:  # pytest's own folders are closed to others
        if os.getuid() == 0 and ("pytest" in parent.name or "popen" in parent.name):
            parent.chmod(0o755)
    if locked == "file":
        folder.chmod(0o777)
    result = run_save(folder, lowered)
    folder.chmod(0o755)
    assert "read-only" in result.stdout, result
    assert (folder / "config.json").read_bytes() == data and not leftovers(folder)


@pytest.fixture
def small_disk(tmp_path):
    """A file system with 16 kB, when this user may mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", os.fsencode(place), b"tmpfs", 0, b"size=16k") != 0:
        pytest.skip("mounting a file system needs rights this user has not")
    yield place
    libc.umount2(os.fsencode(place), 2)


def test_a_full_disk_is_refused_and_nothing_is_lost(small_disk):
    (small_disk / "config.json").write_text('{\n  "block_size": 16\n}\n')
    (small_disk / "filler").write_bytes(b"x" * 8192)
    file = read(small_disk)
    with pytest.raises(LabError, match="No room left"):
        save(file, file.raw | {"long": "x" * 9000})
    assert read(small_disk) == file and leftovers(small_disk) == ["filler"]


def test_a_read_only_file_system_is_refused_and_nothing_is_lost(small_disk):
    (small_disk / "config.json").write_text('{\n  "block_size": 16\n}\n')
    file = read(small_disk)
    remount, read_only = 32, 1
    assert ctypes.CDLL(None).mount(b"tmpfs", os.fsencode(small_disk), b"tmpfs", remount | read_only, None) == 0
    with pytest.raises(LabError, match="read-only"):
        save(file, edited(file))
    assert read(small_disk) == file


def test_a_write_cut_short_is_refused_and_nothing_is_lost(folder):
    data = (folder / "config.json").read_bytes()
    result = run_save(folder, "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))")
    assert "No room left" in result.stdout, result
    assert (folder / "config.json").read_bytes() == data and not leftovers(folder)


def test_a_link_out_of_the_folder_is_refused(folder, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "config.json"
    outside.write_text('{"theirs": 1}')
    link = folder / "config.json"
    link.unlink()
    link.symlink_to(outside)
    with pytest.raises(LabError, match="outside its folder"):
        save(read(link), {"ours": 1})
    assert json.loads(outside.read_text()) == {"theirs": 1} and link.is_symlink()


def test_a_link_inside_the_folder_stays_a_link(folder):
    (folder / "config.json").rename(folder / "real.json")
    (folder / "config.json").symlink_to("real.json")
    file = read(folder)
    save(file, edited(file))
    assert (folder / "config.json").is_symlink() and read(folder / "real.json").raw["block_size"] == 8


@pytest.fixture
def snapshot(tmp_path, monkeypatch):
    """A drafter in the hub's cache: every file a link into blobs."""
    monkeypatch.setenv("DFLASH_LAB_DATA", str(tmp_path / "data"))
    repo = tmp_path / "hub" / "models--z-lab--Qwen3-8B-DFlash-b16"
    place = repo / "snapshots" / "abc"
    place.mkdir(parents=True)
    (repo / "blobs").mkdir()
    raw = published.raw("Qwen3-8B-DFlash-b16")
    for name, content in (("config.json", json.dumps(raw, indent=2)), ("model.safetensors", "weights")):
        (repo / "blobs" / name[:3]).write_text(content)
        (place / name).symlink_to(f"../../blobs/{name[:3]}")
    return place


def test_a_hub_pair_is_saved_to_an_overlay_with_links_to_the_weights(snapshot):
    file = read(snapshot)
    assert leads_out(file.path)
    twin = overlay(file)
    saved = save(twin, edited(twin)).file
    assert "z-lab--Qwen3-8B-DFlash-b16" in saved.path.parent.name
    assert saved.raw["block_size"] == 8 and not saved.path.is_symlink()
    assert (saved.path.parent / "model.safetensors").read_text() == "weights"
    assert (saved.path.parent / "model.safetensors").is_symlink()
    assert read(snapshot) == file


def test_an_overlay_keeps_its_edits_when_opened_again(snapshot):
    twin = overlay(read(snapshot))
    save(twin, edited(twin))
    assert overlay(read(snapshot)).raw["block_size"] == 8


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b"1" * 5000, b"[" * 100_000])
def test_a_file_that_is_no_config_is_named(tmp_path, content):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(LabError, match=r"config\.json"):
        read(tmp_path)


def test_a_value_json_cannot_hold_is_refused(folder):
    file = read(folder)
    with pytest.raises(LabError, match="JSON"):
        save(file, file.raw | {"rms_norm_eps": float("nan")})
    assert read(folder) == file


def test_two_saves_in_a_row_keep_two_versions(folder):
    file = read(folder)
    for block in (2, 3):
        file = save(file, file.raw | {"block_size": block}).file
        time.sleep(0.001)
    assert len(versions(file.path)) == 2
