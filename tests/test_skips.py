"""In CI a test that is left out is a test that failed, unless its reason is listed."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.source_tree import ROOT

SKIPPED = {
    "in a test": "import pytest\ndef test_it(): pytest.skip('no camera')",
    "in a module": "import pytest\npytest.importorskip('no_such_module', reason='no camera')",
    "listed": "import pytest\ndef test_it(): pytest.skip('needs a GPU')",
    "expected to fail": "import pytest\n@pytest.mark.xfail\ndef test_it(): assert False",
}


def exit_code(folder: Path, code: str, *arguments: str) -> int:
    (folder / "conftest.py").write_text("from tests.conftest import *")
    (folder / "test_skipped.py").write_text(code)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(folder), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True).returncode


@pytest.mark.long
@pytest.mark.parametrize("name", ["in a test", "in a module"])
def test_a_skip_is_a_failure_where_nothing_is_missing(name, tmp_path):
    assert exit_code(tmp_path, SKIPPED[name]) in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    refused = exit_code(tmp_path, SKIPPED[name], "--no-skips")
    assert refused in (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED)


@pytest.mark.long
@pytest.mark.parametrize("name", ["listed", "expected to fail"])
def test_a_listed_reason_is_none(name, tmp_path):
    assert exit_code(tmp_path, SKIPPED[name], "--no-skips") == pytest.ExitCode.OK
