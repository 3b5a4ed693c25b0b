"""Files that are no regular ones: nothing may wait for them, whoever reads."""

import os
import socket
import threading

import pytest

from ntk_deq.claims.load import load_suite
from ntk_deq.data import load_images
from ntk_deq.data.readers import load_npz, read_idx
from ntk_deq.dynamics import TrainingRun, resume
from ntk_deq.errors import ClaimFileError, NtkDeqError
from ntk_deq.files import open_regular
from ntk_deq.report.jsonl import read_results, stored_runs
from ntk_deq.verify.replay import read_counterexample


def pipe(path):
    os.mkfifo(path)
    return path


def listening(path, kept):
    kept.append(socket.socket(socket.AF_UNIX))
    kept[-1].bind(str(path))
    return path


@pytest.fixture(params=["pipe", "socket", "device", "folder", "link to a pipe"])
def odd(request, tmp_path, monkeypatch):
    """A path that ends as every reader wants it, and is no regular file."""
    monkeypatch.chdir(tmp_path)  # the name of a socket must be short
    path, kept = tmp_path / "odd.npz", []
    if request.param == "pipe":
        pipe(path)
    elif request.param == "socket":
        listening("odd.npz", kept)
    elif request.param == "device":
        path.symlink_to("/dev/zero")
    elif request.param == "folder":
        path.mkdir()
    else:
        path.symlink_to(pipe(tmp_path / "pipe"))
    yield path
    for opened in kept:
        opened.close()


READERS = {
    "claim file": load_suite,
    "data, npz": load_npz,
    "data, idx": read_idx,
    "images": lambda path: load_images("npz", path),
    "replay": read_counterexample,
    "stored run": TrainingRun.load,
    "checkpoint": resume,
    "results": lambda path: stored_runs(path if not path.is_dir() else path / "results.jsonl"),
}


@pytest.mark.parametrize("reader", READERS)
def test_no_reader_waits_for_what_is_no_regular_file(reader, odd):
    with pytest.raises((NtkDeqError, OSError)) as caught:
        within(10, lambda: READERS[reader](odd))
    assert isinstance(caught.value, NtkDeqError)


def test_results_that_are_a_pipe(tmp_path):
    with pytest.raises(OSError, match="it is a pipe, no regular file"):
        within(10, lambda: read_results(pipe(tmp_path / "results.jsonl")))


def within(seconds, call):
    """Return what a call returns, or fail where it takes longer; a thread that hangs is left behind."""
    ended = []

    def work():
        try:
            ended.append((call(), None))
        except Exception as error:
            ended.append((None, error))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    assert ended, f"no end within {seconds} s"
    value, error = ended[0]
    if error is not None:
        raise error
    return value


class TestDescriptors:
    """A claim file that a shell hands over by process substitution, as `verify-claims check <(...)`."""

    TEXT = b"suite: s\nsettings: {p: {domain: {x: real}}}\nclaims:\n  - {id: a, setting: p, conclude: x^2 >= 0}\n"

    def load(self, name, content):
        reading, writing = os.pipe()
        try:
            thread = threading.Thread(target=lambda: (os.write(writing, content), os.close(writing)))
            thread.start()
            suite = within(10, lambda: load_suite(name.format(reading)))
            thread.join()
            return suite
        finally:
            os.close(reading)

    @pytest.mark.parametrize("name", ["/dev/fd/{}", "/proc/self/fd/{}"])
    def test_a_pipe_is_read_once_to_its_end(self, name):
        suite = self.load(name, self.TEXT)
        assert [claim.id for claim in suite.claims] == ["a"]
        assert suite.file.endswith(str(suite.claims[0].position).split(":")[0].rsplit("/", 1)[-1])

    def test_problems_have_its_name(self):
        with pytest.raises(ClaimFileError, match=r"^/dev/fd/\d+:1:1: "):
            self.load("/dev/fd/{}", b"- a\n")

    def test_what_it_includes_lies_in_the_working_folder(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "more.yaml").write_bytes(self.TEXT)
        suite = self.load("/dev/fd/{}", b"suite: s\ninclude: [more.yaml]\n")
        assert [claim.id for claim in suite.claims] == ["a"]

    def test_a_descriptor_that_is_not_open(self):
        with pytest.raises(ClaimFileError, match="Bad file descriptor"):
            load_suite("/dev/fd/987654")


def test_what_it_is_is_said(odd):
    with pytest.raises(OSError, match=r"it is a (pipe|socket|device|folder)"):
        open_regular(odd)


def test_a_regular_file_and_a_link_to_it(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "b").symlink_to("a")
    for name in "ab":
        with open_regular(tmp_path / name) as stream:
            assert stream.read() == b"abc"


def test_a_name_that_no_file_can_have(tmp_path):
    for name in ("a\0b", "x" * 5000):
        with pytest.raises(OSError, match=r"NUL|too long"):
            open_regular(tmp_path / name)
        with pytest.raises(ClaimFileError):
            load_suite(tmp_path / name)
