"""Where torch keeps what it has compiled."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._dynamo.exc import TorchDynamoException
from torch._inductor import config
from torch._inductor.runtime.cache_dir_utils import cache_dir
from torch.utils._filelock import FileLock

from policies.compiled import VARIABLE, compiler_trouble, is_whole_library, keep_compiled, usual_folder
from robot_runtime.errors import InvalidValueError


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, "")  # so that it is put back
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_torch_keeps_it_where_it_was_told_and_the_folder_is_its_owner_s_alone(tmp_path: Path):
    folder = tmp_path / "compiled" / "here"
    assert keep_compiled(folder) == folder
    assert cache_dir() == str(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert keep_compiled() == folder  # said before


def test_it_is_kept_beyond_the_next_start_of_the_machine_if_nobody_says_where(tmp_path: Path):
    assert keep_compiled() == usual_folder() == tmp_path / "cache" / "robot-runtime" / "compiled"
    assert cache_dir() == str(usual_folder())


def test_what_the_environment_says_goes_before_what_is_usual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "theirs"))
    assert keep_compiled() == tmp_path / "theirs"
    assert not usual_folder().exists()


@pytest.mark.long
def test_what_torch_cannot_compile_is_said_in_a_sentence_with_the_folder_to_remove(
    tmp_path: Path,
):
    keep_compiled(tmp_path / "kept")
    with config.patch({"cpp.cxx": ("/bin/false",)}), pytest.raises(TorchDynamoException) as found:
        torch.compile(lambda x: x.sin() + x.cos())(torch.zeros(8))
    message = compiler_trouble(found.value)
    assert message is not None
    assert len(message.splitlines()) == 1
    assert f"its cache {tmp_path / 'kept'} may be damaged" in message
    assert compiler_trouble(ValueError("of the policy's own")) is None


def test_a_folder_that_others_can_write_to_is_refused_for_what_lies_there_is_run(tmp_path: Path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(InvalidValueError, match=r"others can write to .*chmod go-w"):
        keep_compiled(tmp_path / "open")
    assert VARIABLE not in os.environ
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file" / "below", Path("/proc/self")):
        with pytest.raises(InvalidValueError, match=rf"cannot be kept in {folder}: .*--compile-cache"):
            keep_compiled(folder)
    assert VARIABLE not in os.environ


LIBRARY = Path(min(Path(np.__file__).parent.rglob("*.so"), key=lambda path: path.stat().st_size))


def test_a_library_is_whole_only_with_its_last_byte():
    assert all(is_whole_library(path) for path in Path(torch.__file__).parent.rglob("lib*.so"))


@given(share=st.floats(0.0, 0.999), is_sparse=st.booleans())
def test_a_library_that_is_cut_anywhere_is_found_out(
    tmp_path_factory: pytest.TempPathFactory, share: float, is_sparse: bool
):
    """The rest is missing, or was never written into a file of full size."""
    path = tmp_path_factory.mktemp("cut") / "cut.so"
    whole = LIBRARY.read_bytes()
    kept = whole[: int(share * len(whole))]
    path.write_bytes(kept.ljust(len(whole) * is_sparse, b"\0"))
    assert not is_whole_library(path)


def test_what_is_damaged_is_removed_at_start_with_one_line_and_what_is_whole_or_being_written_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    whole, empty, half, in_work, old = (tmp_path / "ab" / f"{name}.main.so" for name in "wehjo")
    (tmp_path / "ab").mkdir()
    (tmp_path / "locks").mkdir()
    whole.write_bytes(LIBRARY.read_bytes())
    half.write_bytes(LIBRARY.read_bytes()[: LIBRARY.stat().st_size // 2])
    for path in (empty, in_work, old, tmp_path / "ab" / "empty.py", tmp_path / "locks" / "i.lock"):
        path.write_bytes(b"")
    with FileLock(tmp_path / "locks" / "j.lock"):
        keep_compiled(tmp_path)
        assert {path.name for path in (tmp_path / "ab").iterdir()} == {whole.name, in_work.name}
    assert (tmp_path / "locks" / "i.lock").exists()
    (record,) = caplog.records
    assert f"4 damaged files in {tmp_path} are removed and compiled again" in record.getMessage()
    keep_compiled()  # as every later start: said before, and looked at again
    assert not in_work.exists()
