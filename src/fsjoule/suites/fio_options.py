"""fio's options in suites: which a workload may have, and why not the others. Pure.

What is not listed is refused, because an option may run a program, write a file or reach a device beside the measured
filesystem. fio itself judges values of text; the board has it, so its message is why a measurement is invalid.
"""

from __future__ import annotations

import re
from typing import Final

from fsjoule.model.operation import fio_bytes, fio_seconds


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _renamed(text: str) -> dict[str, str]:
    return dict(each.split("=") for each in text.split())


def _pairs(text: str) -> dict[str, str]:
    """Names of options with what is said of them, a line each: `uid gid: it changes the board`."""
    lines = [line.strip().partition(": ") for line in text.strip().splitlines()]
    return {name: why for names, _, why in lines for name in names.split()}


# Engines that read and write files, and no more.
ENGINES: Final = "sync psync vsync pvsync pvsync2 libaio posixaio io_uring mmap splice".split()  # noqa: SIM905
_ALIASES: Final = _renamed(
    "readwrite=rw blocksize=bs blocksize_range=bsrange blocksize_unaligned=bs_unaligned io_limit=io_size "
    "nr_files=nrfiles timeout=runtime wait_for_previous=stonewall ba=blockalign iomem=mem mem_align=iomem_align "
    "ratemin=rate_min iodepth_batch=iodepth_batch_submit iodepth_batch_complete=iodepth_batch_complete_min "
    "ratecycle=rate_cycle fill_fs=fill_device ss=steadystate"
)
# Fields of a workload, by fio's names: in a TOML file they have a name of their own.
FIELDS: Final = _renamed(
    "rw=operation bs=block_kib size=size_mib numjobs=jobs iodepth=depth direct=direct buffered=direct "
    "fsync=fsync_every end_fsync=end_fsync ioengine=engine nrfiles=files io_size=moved_mib time_based=seconds"
)
# Ours: they change nothing of the work, so a job file may have them.
OURS: Final = _pairs("""
    directory filename unique_filename: the files are on the measured filesystem
    group_reporting new_group unified_rw_reporting: jobs that run together are added up
    name description unit_base disk_util per_job_logs: it is of fio's report
    randseed randrepeat allrandrepeat: each repetition has a recorded seed
    unlink invalidate: each measurement begins without caches
    ramp_time: the window begins with the first I/O, and energy cannot leave a ramp out
    refill_buffers: it is on, so that no filesystem compresses the data
""")
_REFUSED: Final = _pairs("""
    exec_prerun exec_postrun: fsjoule sends its marks with it: an own command can run a program
    include profile filename_format opendir: it reads what is not in this file
    read_iolog write_iolog merge_blktrace_file: a log's paths are beyond the filesystem
    write_bw_log write_lat_log write_iops_log write_hist_log: its file would be written beside the work
    ioscheduler cgroup cgroup_weight uid gid: it changes the board, not the work
    replay_redirect hostname port client server: it reaches another device or computer
    startdelay wait_for: jobs begin together; `stonewall` puts one after the other
    filesize fill_device file_append offset offset_increment number_ios create_only: the size of the files is size
    loops: io_size (moved_mib) moves more than size
    kb_base: sizes are fio's default: 4k is 4096
    gtod_reduce disable_lat disable_clat disable_slat stats: the figures need what it leaves out
    continue_on_error ignore_error: a figure with errors is invalid
    trim_percentage trim_backlog zonemode verify_only: it is no I/O on files
""")
_COUNTS: Final = _names(
    "rwmixread rwmixwrite fdatasync write_barrier openfiles thinkcycles thinktime_blocks rate_iops rate_iops_min "
    "rate_cycle iodepth_batch_submit iodepth_batch_complete_min iodepth_batch_complete_max iodepth_low "
    "percentage_random percentage_sequential nice prio prioclass priohint dedupe_percentage "
    "dedupe_working_set_percentage buffer_compress_percentage verify_backlog verify_backlog_batch verify_async "
    "lockmem flow flow_id cmdprio cmdprio_percentage cmdprio_class hipri_percentage nonvectored force_async "
    "sqthread_poll_cpu numa_cpu_nodes"
)
_SIZES: Final = _names(
    "rate rate_min blockalign offset_align iomem_align hugepage-size buffer_compress_chunk verify_interval "
    "verify_offset"
)
_TIMES: Final = _names("runtime thinktime thinktime_spin thinktime_iotime latency_target latency_window max_latency")
_FLAGS: Final = _names(
    "norandommap softrandommap bs_unaligned bs_is_seq_rand overwrite fsync_on_close end_syncfs create_on_open "
    "create_serialize create_fsync pre_read zero_buffers scramble_buffers serialize_overlap rate_ignore_thinktime "
    "thread exitall exitall_on_error do_verify verify_fatal verify_write_sequence verify_header_seed "
    "verify_pattern_interval fixedbufs registerfiles sqthread_poll hipri nowait uncached atomic libaio_vectored "
    "userspace_reap random_sequence_stride clat_percentiles lat_percentiles slat_percentiles dedupe_global "
    "latency_run"
)
_TEXTS: Final = _names(
    "random_distribution random_generator bsrange bssplit rw_sequencer fallocate fadvise_hint write_hint sync "
    "sync_file_range file_service_type io_submit_mode rate_process verify verify_policy verify_pattern "
    "buffer_pattern dedupe_mode mem cpus_allowed cpus_allowed_policy cpumask numa_mem_policy thinktime_blocks_type "
    "clocksource latency_percentile percentile_list cmdprio_bssplit steadystate steadystate_duration "
    "steadystate_ramp_time"
)
_RANGES: Final = {"rwmixread": (0, 100), "rwmixwrite": (0, 100), "thinktime_blocks": (1, 10**9)}
_VALUE: Final = re.compile(r"[\w .,:;%+\-/\"()@]{1,200}", re.ASCII)
_PATHS: Final = ("bssplit", "cmdprio_bssplit")  # `4k/60` is none
_ZONES: Final = re.compile(r"zoned(_abs)?(:[0-9.a-z]+/[0-9.a-z]+)+", re.ASCII)
_FOR_EACH_SIDE: Final = frozenset({"rate", "rate_min", "rate_iops", "rate_iops_min"})  # read,write,trim


def canonical(name: str) -> str:
    """An option's one name."""
    return _ALIASES.get(name.lower(), name.lower())


def checked_option(name: str, value: str) -> str:
    """The value of an option that may be in a workload beside its fields. Raises ValueError with the reason."""
    if why := _REFUSED.get(name):
        raise ValueError(f"{name} is refused: {why}")
    if name not in _COUNTS | _SIZES | _TIMES | _FLAGS | _TEXTS:
        raise ValueError(f"{name} is refused: fsjoule knows no such option of fio's for work on files")
    if "$" in value:
        raise ValueError(f"{name}={value}: variables are refused, the board and this computer have different ones")
    zones = name == "random_distribution" and _ZONES.fullmatch(value)
    if not _VALUE.fullmatch(value) or ("/" in value and name not in _PATHS and not zones):
        raise ValueError(f"{name}={value!r}: the value is no plain word, and paths are refused")
    if name in _FLAGS and value not in {"0", "1"}:
        raise ValueError(f"{name}={value}: it is 0 or 1")
    for each in re.split("[,:]", value) if name in _FOR_EACH_SIDE else [value]:
        _check_number(name, each, value)
    return value


def _check_number(name: str, number: str, value: str) -> None:
    least, most = _RANGES.get(name, (-(10**9), 10**9))
    try:
        if name in _TIMES:
            fio_seconds(number)
        if name in _SIZES and number:
            fio_bytes(number)
        if name in _COUNTS and (number or name in _RANGES) and not least <= int(number) <= most:
            raise ValueError(f"{number} is not in {least} to {most}")  # noqa: TRY301
    except ValueError as error:
        raise ValueError(f"{name}={value}: {error}") from error


def checked_together(options: dict[str, str], *, reads: bool, writes: bool) -> tuple[tuple[str, str], ...]:
    """The options of one job in order. Raises ValueError for those that do not go together."""
    if "rwmixwrite" in options:  # one name for one thing
        mixed = str(100 - int(options.pop("rwmixwrite")))
        if options.setdefault("rwmixread", mixed) != mixed:
            raise ValueError("rwmixread and rwmixwrite do not add up to 100")
    if "rwmixread" in options and not (reads and writes):
        raise ValueError("rwmixread belongs to rw and randrw")
    if "verify" in options and not writes:
        raise ValueError("verify belongs to a job that writes: no other knows what it has to read")
    return tuple(sorted(options.items()))
