"""What importing into an index must do, on every database."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from index_runs import edit, made_run, many_runs, measured, measurement_file, write_run

from fsjoule.errors import ConfigError
from fsjoule.model import Measurement, RunStatus
from fsjoule.model.metrics import Metric
from fsjoule.model.series import Where
from fsjoule.store.folder import RunFolder
from fsjoule.store.index.database import Index, open_index
from fsjoule.store.index.importer import import_runs, rebuild
from fsjoule.store.index.queries import list_series, points, stats

_LIMIT_S = 300.0
_PROGRAM = """
import json, os, signal, sys, time
from dataclasses import asdict
from pathlib import Path
from fsjoule.store.index.database import open_index
from fsjoule.store.index.importer import import_runs

location, go, kill_at, *paths = sys.argv[1:]

def watch(done, of):
    if done == int(kill_at):
        os.kill(os.getpid(), signal.SIGKILL)

while not Path(go).exists():
    time.sleep(0.001)
with open_index(location, create=True) as index:
    print(json.dumps(asdict(import_runs(index, map(Path, paths), watch=watch)), default=str))
"""

NewLocation = Callable[[], str]
ALL = Where(invalid_too=True)


def numbers(index: Index, run_id: str) -> list[int]:
    return sorted(number for run, number in measured(index) if run == run_id)


def _importer(location: str, paths: Sequence[Path], go: Path, kill_at: int = 0) -> subprocess.Popen[bytes]:
    """A process that imports as soon as the file `go` is there, and kills itself when it has read `kill_at` folders."""
    argv = [sys.executable, "-c", _PROGRAM, location, str(go), str(kill_at), *map(str, paths)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE)


def faster(measurement: Measurement) -> Measurement:
    return replace(measurement, duration_s=0.001)


class TestImporting:
    """Run folders into an index."""

    # ------------------------------------------------------------------------------------- the same twice

    def test_importing_twice_changes_nothing(self, index: Index, results: Path) -> None:
        write_run(results, "aaaaaa")
        write_run(results, "bbbbbb", started="2026-03-10T10:00:00Z")
        first = import_runs(index, [results])
        assert (first.folders, first.new, first.measurements) == (2, 2, 30)
        before = measured(index)
        second = import_runs(index, [results])
        assert (second.new, second.changed, second.unchanged, second.measurements) == (0, 0, 2, 0)
        assert measured(index) == before
        assert len(before) == 30

    def test_a_path_may_be_a_run_its_file_or_any_folder_above(self, index: Index, results: Path) -> None:
        path = write_run(results / "deep" / "below").path
        for given in (path, path / "run.json", results, results / "deep"):
            report = import_runs(index, [given, path])
            assert report.folders == 1
        assert len(measured(index)) == 15

    def test_paths_without_runs_are_refused_before_anything_is_changed(self, index: Index, results: Path) -> None:
        import_runs(index, [write_run(results).path])
        empty = results.parent / "empty"
        empty.mkdir()
        for given, words in ((empty, "no run folder at or below"), (empty / "gone", "is not a folder")):
            for function in (import_runs, rebuild):
                with pytest.raises(ConfigError, match=words):
                    function(index, [given])
        assert len(measured(index)) == 15

    # -------------------------------------------------------------------------------------------- copies

    def test_copies_of_one_run_merge(self, index: Index, results: Path, tmp_path: Path) -> None:
        path = write_run(results).path
        copy = tmp_path / "elsewhere" / path.name
        shutil.copytree(path, copy)
        shutil.rmtree(measurement_file(copy, 4).parent)
        shutil.rmtree(measurement_file(path, 5).parent)
        report = import_runs(index, [results, copy.parent])
        assert (report.folders, report.new, report.changed, report.measurements) == (2, 1, 1, 15)
        assert numbers(index, "aaaaaa") == list(range(1, 16))
        assert {fault.path.name[:2] for fault in report.damaged_measurements} == {"04", "05"}

    def test_a_run_that_goes_on_grows_and_an_old_copy_takes_nothing_away(
        self, index: Index, results: Path, tmp_path: Path
    ) -> None:
        made = made_run()
        folder = RunFolder(results)
        folder.begin(replace(made.run, status=RunStatus.RUNNING))
        for measurement in made.measurements[:5]:
            folder.add(measurement, None, {})
        assert import_runs(index, [results]).measurements == 5
        shutil.copytree(folder.path, tmp_path / "copy")
        for measurement in made.measurements[5:]:
            folder.add(measurement, None, {})
        folder.finish(made.run)
        report = import_runs(index, [results])
        assert (report.changed, report.measurements) == (1, 10)
        report = import_runs(index, [tmp_path / "copy"])
        assert (report.unchanged, report.measurements, report.conflicts) == (1, 0, [])
        assert len(measured(index)) == 15

    def test_a_run_that_was_aborted_may_go_on(self, index: Index, results: Path, tmp_path: Path) -> None:
        made = made_run()
        folder = RunFolder(results)
        folder.begin(replace(made.run, status=RunStatus.RUNNING))
        for measurement in made.measurements[:5]:
            folder.add(measurement, None, {})
        folder.finish(replace(made.run, status=RunStatus.ABORTED, abort_reason="interrupted"))
        assert import_runs(index, [results]).measurements == 5
        shutil.copytree(folder.path, tmp_path / "copy")
        folder = RunFolder.reopened(folder.path, {each.number for each in made.measurements[:5]})
        for measurement in made.measurements[5:]:
            folder.add(measurement, None, {})
        folder.finish(replace(made.run, resumed_utc=("2026-03-10T10:00:00Z",)))
        for path, added in ((results, 10), (tmp_path / "copy", 0)):
            report = import_runs(index, [path])
            assert (report.changed, report.measurements, report.conflicts) == (int(added > 0), added, [])
        assert len(measured(index)) == 15

    def test_another_layout_of_the_same_files_is_the_same_run(self, index: Index, results: Path) -> None:
        path = write_run(results).path
        import_runs(index, [path])
        for file in path.rglob("*.json"):
            file.write_text(json.dumps(dict(reversed(json.loads(file.read_text()).items()))))
        report = import_runs(index, [path])
        assert (report.unchanged, report.conflicts, report.damaged_runs) == (1, [], [])

    @pytest.mark.parametrize(
        ("file", "changes", "words"),
        [
            ("measurements/07-*/measurement.json", {"duration_s": 0.5}, "another measurement 7"),
            ("run.json", {"finished_utc": "2026-03-09T11:00:00Z"}, "another run.json"),
            ("run.json", {"started_utc": "2026-03-08T10:00:00Z"}, "another time of start or plan"),
        ],
    )
    def test_another_content_under_the_same_id_is_named_and_left_out(
        self, index: Index, results: Path, *, file: str, changes: dict[str, object], words: str
    ) -> None:
        path = write_run(results / "one").path
        import_runs(index, [path])
        before = measured(index)
        other = results / "other" / path.name
        shutil.copytree(path, other)
        edit(next(other.glob(file)), **changes)
        write_run(results / "other", "bbbbbb", started="2026-03-10T10:00:00Z")
        for _ in range(2):
            (conflict,) = import_runs(index, [results / "other"]).conflicts
            assert conflict.path == other
            assert "run aaaaaa" in conflict.reason
            assert str(path) in conflict.reason
            assert words in conflict.reason
        after = measured(index)
        assert {place: after[place] for place in before} == before
        assert numbers(index, "bbbbbb") == list(range(1, 16))

    # -------------------------------------------------------------------------------------------- damage

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            ('{"schema": "fsjoule.run', "not JSON"),
            ('{"schema": "fsjoule.run/9"}', "of schema"),
            ("[" * 100_000, "nested deeper"),
            (None, "has no run.json"),
        ],
    )
    def test_a_damaged_run_is_named_skipped_and_counted(
        self, index: Index, results: Path, content: str | None, words: str
    ) -> None:
        broken = write_run(results, "broken").path
        if content is None:
            (broken / "run.json").unlink()
        else:
            (broken / "run.json").write_text(content)
        write_run(results, "aaaaaa", started="2026-03-10T10:00:00Z")
        report = import_runs(index, [results])
        (fault,) = report.damaged_runs
        assert fault.path == broken
        assert words in fault.reason
        assert (report.new, report.measurements) == (1, 15)
        assert {run for run, _ in measured(index)} == {"aaaaaa"}

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"iops": "many"}, "iops"),
            ({"iops": float("nan")}, "iops"),
            ({"boot": 2**40}, "boot: 1099511627776 is impossible"),
            ({"started_utc": "yesterday"}, "'yesterday' is not a time"),
            ({"started_utc": "2026-03-09T10:00:00"}, "no time zone"),
            ({"started_utc": "0001-01-01T00:00:00+14:00"}, "is not a time"),
        ],
    )
    def test_a_damaged_measurement_is_named_skipped_and_counted(
        self, index: Index, results: Path, changes: dict[str, object], words: str
    ) -> None:
        path = write_run(results).path
        broken = measurement_file(path, 9)
        edit(broken, **changes)
        report = import_runs(index, [results])
        (fault,) = report.damaged_measurements
        assert fault.path == broken.parent
        assert words in fault.reason
        assert numbers(index, "aaaaaa") == [n for n in range(1, 16) if n != 9]

    def test_names_that_no_database_could_take_are_damage(self, index: Index, results: Path) -> None:
        path = write_run(results).path
        edit(path / "run.json", run_id="x" * 5000)
        assert "run_id" in import_runs(index, [results]).damaged_runs[0].reason
        path = write_run(results, "bbbbbb").path
        broken = measurement_file(path, 9)
        edit(broken, series={**json.loads(broken.read_text())["series"], "storage": "mmc\0"})
        assert import_runs(index, [path]).damaged_measurements == []
        assert "mmc\ufffd" in {count.series.series.storage for count in list_series(index)}

    def test_a_console_s_rubbish_in_a_reason_is_kept_readable(self, index: Index, results: Path) -> None:
        path = write_run(results, change=lambda m: replace(m, invalid_reasons=("the kernel reported: mmc\0é ✓",))).path
        assert import_runs(index, [path]).measurements == 15
        assert measured(index)["aaaaaa", 1].invalid_reasons == ("the kernel reported: mmc�é ✓",)

    # ------------------------------------------------------------------------------------------- rebuild

    def test_a_rebuild_follows_the_folders(self, index: Index, results: Path) -> None:
        changed = write_run(results, "aaaaaa").path
        gone = write_run(results, "bbbbbb", started="2026-03-10T10:00:00Z").path
        kept = write_run(results, "cccccc", started="2026-03-11T10:00:00Z").path
        import_runs(index, [results])
        edit(measurement_file(changed, 7), duration_s=0.5)
        shutil.rmtree(measurement_file(kept, 8).parent)
        shutil.rmtree(gone)
        report = rebuild(index, [results])
        assert report.dropped == ["bbbbbb"]
        assert (report.conflicts, report.measurements) == ([], 29)
        after = measured(index)
        assert {run for run, _ in after} == {"aaaaaa", "cccccc"}
        assert after["aaaaaa", 7].figures[Metric.DURATION] == 0.5
        assert ("cccccc", 8) not in after

    def test_a_rebuild_equals_a_new_index(self, index: Index, results: Path, new_location: NewLocation) -> None:
        import_runs(index, [write_run(results / "old", "bbbbbb").path])
        for day in (1, 2, 3):
            write_run(results / "new", f"run{day}", started=f"2026-03-0{day}T10:00:00Z", kernel=(f"6.{day}.0", ""))
        rebuild(index, [results / "new"])
        with open_index(new_location(), create=True) as fresh:
            import_runs(fresh, [results / "new"])
            assert measured(fresh) == measured(index)
            assert points(fresh) == points(index)
            assert stats(fresh) == stats(index)

    def test_two_folders_that_differ_are_a_conflict_in_a_rebuild_too(self, index: Index, results: Path) -> None:
        write_run(results / "a")
        write_run(results / "b", change=faster)
        for _ in range(2):
            report = rebuild(index, [results])
            assert [fault.path.parent.name for fault in report.conflicts] == ["b"]
            assert measured(index)["aaaaaa", 1].figures[Metric.DURATION] != 0.001

    def test_what_others_import_during_a_rebuild_is_kept(self, results: Path, new_location: NewLocation) -> None:
        location = new_location()
        write_run(results / "here", "aaaaaa")
        write_run(results / "there", "bbbbbb")

        def meanwhile(done: int, of: int) -> None:
            assert (done, of) == (1, 1)
            with open_index(location) as other:
                import_runs(other, [results / "there"])

        with open_index(location, create=True) as index:
            assert rebuild(index, [results / "here"], watch=meanwhile).dropped == []
            assert {run for run, _ in measured(index)} == {"aaaaaa", "bbbbbb"}

    # ---------------------------------------------------------------------------------- several processes

    def test_processes_that_import_at_once_lose_nothing(
        self, results: Path, new_location: NewLocation, tmp_path: Path
    ) -> None:
        """Two processes make the index and import the same runs, one of them some more, at the same time."""
        per_run = many_runs(results / "both", 0, 80)
        many_runs(results / "more", 80, 40)
        location = new_location()
        sides = ([results], [results / "both"])
        importers = [_importer(location, side, tmp_path / "go") for side in sides]
        (tmp_path / "go").touch()
        reports = [json.loads(importer.communicate(timeout=_LIMIT_S)[0]) for importer in importers]
        assert [importer.returncode for importer in importers] == [0, 0]
        assert sum(report["new"] for report in reports) == 120
        assert sum(report["unchanged"] for report in reports) == 80
        assert sum(report["measurements"] for report in reports) == 120 * per_run
        with open_index(location) as index:
            assert (stats(index).runs, stats(index).measurements) == (120, 120 * per_run)
            assert len(measured(index)) == 120 * per_run

    def test_an_import_that_is_killed_leaves_whole_runs(
        self, results: Path, new_location: NewLocation, tmp_path: Path
    ) -> None:
        per_run = many_runs(results, 0, 120)
        location = new_location()
        (tmp_path / "go").touch()
        killed = _importer(location, [results], tmp_path / "go", kill_at=100)
        killed.communicate(timeout=_LIMIT_S)
        assert killed.returncode == -signal.SIGKILL
        with open_index(location) as index:
            found = stats(index)
            assert 0 < found.runs < 100
            assert found.measurements == found.runs * per_run
            report = import_runs(index, [results])
            assert (report.new, report.unchanged) == (120 - found.runs, found.runs)
            assert stats(index).measurements == 120 * per_run
