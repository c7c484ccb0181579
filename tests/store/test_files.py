"""One experiment as a file: there and back, and every file that is not one."""

from __future__ import annotations

import json
import zlib

import pytest

from dflash_lab.errors import LabError
from dflash_lab.store import Store
from dflash_lab.store.experiment import LARGEST, pack
from dflash_lab.store.files import file_name, read_file, take_in, write_file
from tests.store.made import experiment


def test_an_experiment_travels_to_another_notebook(tmp_path):
    made = experiment("a", note="n", kept=True)
    path = write_file(made, tmp_path / "a.dflash")
    other = Store(tmp_path / "other.db")
    assert take_in(other, read_file(path)) == made == other.get("a")
    take_in(other, read_file(path))
    assert len(other.entries()) == 1, "the same one twice is one"


def test_another_experiment_of_that_id_is_not_overwritten(tmp_path):
    store = Store(tmp_path / "n.db")
    store.put(experiment("a", title="Mine"))
    taken = take_in(store, experiment("a", title="Theirs"))
    assert taken.id != "a" and {e.title for e in store.entries()} == {"Mine", "Theirs"}


def test_a_title_makes_no_path():
    assert file_name(experiment(title="../../etc/passwd\0 <b>")) == "etc-passwd-b.dflash"
    assert file_name(experiment(title="名")) == "experiment.dflash"


def changed(**changes) -> bytes:
    return zlib.compress(json.dumps({**experiment().to_json(), **changes}).encode())


DEEP = zlib.compress(b'{"a":' * 5000 + b"1" + b"}" * 5000)
NESTED = zlib.compress(b'{"schema_version": 1, "a": ' + b"[" * 150 + b"]" * 150 + b"}")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "cut short"),
        (b"\x89PNG", "no experiment"),
        (pack(experiment())[:-9], "cut short"),
        (zlib.compress(b"[1, 2]"), "no experiment"),
        (zlib.compress(b"{nonsense"), "not JSON"),
        (DEEP, "not JSON|nests deeper"),
        (NESTED, "nests deeper than 100 levels"),
        (changed(schema_version=2), "schema_version 2, this lab reads 1"),
        (changed(kind="virus"), "kind is 'virus'"),
        (changed(title=7), "title is not text"),
        (changed(main=4), "main is 4"),
        (changed(series=[{"name": "x"}]), "damaged: KeyError"),
        (changed(series=[{"name": "x", "k": 1, "prompts": [], "traces": [{"schema_version": 1}], "counts": None,
                          "config": None}]), "damaged"),
    ],
)  # fmt: skip
def test_a_file_that_is_none_is_refused_in_a_sentence(tmp_path, data, words):
    path = tmp_path / "x.dflash"
    path.write_bytes(data)
    with pytest.raises(LabError, match=words):
        read_file(path)


def test_a_bomb_is_not_unpacked(tmp_path):
    packer = zlib.compressobj(9)
    path = tmp_path / "bomb.dflash"
    with path.open("wb") as stream:
        for _ in range(LARGEST // 2**20 + 8):
            stream.write(packer.compress(bytes(2**20)))
        stream.write(packer.flush())
    assert path.stat().st_size < 2**20
    with pytest.raises(LabError, match="unpacks to more than 64 MB"):
        read_file(path)
