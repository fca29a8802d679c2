"""A window by function. What compilers make of one function has many names, which change from build to build.

There are clones (`foo.isra.0`, `foo.constprop.0`) and parts that were split off (`foo.part.0`, `foo.cold`): all of them
are one function here.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from fsjoule.model import Profile, Symbols

_ADDED: Final = re.compile(r"\.(?:isra|constprop|part|cold|llvm|lto_priv|\d+)(?=\.|$)")
_SPLIT_OFF: Final = re.compile(r"\.(?:part|cold)(?=\.|$)")


@dataclass(frozen=True, slots=True, order=True)
class Function:
    """A function by its name, without what compilers add, and its module, empty for the kernel itself."""

    name: str
    module: str = ""


# Code of a page that is of no known program: what the kernel itself maps into them, for one.
_UNKNOWN: Final = "other code of programs"
_NAMELESS: Final = Function("without a name")
# Where a processor with nothing to do is, or is found when an interrupt wakes it. A sample there is no work.
_IDLE: Final = re.compile(
    r"do_idle|cpu_startup_entry|default_idle(_call)?|arch_cpu_idle|cpu_(\w+_)?do_idle|cpuidle_(enter(_state)?|idle_call)"
    r"|acpi_(idle|safe)_\w+|(pv_)?native_safe_halt|intel_idle\w*|mwait_idle|psci_enter_idle_state"
    r"|(imx6|omap)\w*_enter_(wait|idle)\w*"
)


@dataclass(frozen=True, slots=True)
class Executed:
    """A window: the time of each function in ns, and the whole window's.

    `names` are those that the kernel has for each function that it has, whether executed or not, and `places` the
    folders of the kernel's source that they are from. All times together are `busy_ns` and that of what was repeated.
    `period_ns` is the time that a sample stands for, 0 where every instruction was counted.
    """

    times: Mapping[Function, int]
    names: Mapping[Function, tuple[str, ...]]
    places: Mapping[Function, str]
    window_ns: int
    busy_ns: int
    period_ns: int = 0


def executed(profile: Profile, symbols: Symbols, programs: Mapping[int, str] | None = None) -> Executed:
    """The profile by function; `programs` are known by their pages, and each is one function.

    Samples of a processor that had nothing to do are left out.
    """
    functions = [Function(base_name(name), module) for name, module in zip(symbols.names, symbols.modules, strict=True)]
    names: dict[Function, set[str]] = {}
    for function, name in zip(functions, symbols.names, strict=True):
        names.setdefault(function, set()).add(name)
    in_kernel = profile.pages == 0
    at = np.searchsorted(symbols.addresses, profile.addresses[in_kernel], side="right") - 1
    # Code below the first symbol is counted last: at -1.
    counts = np.zeros(len(functions) + 1, np.int64)
    np.add.at(counts, at, profile.executed[in_kernel].astype(np.int64))
    times: dict[Function, int] = {}
    places: dict[Function, str] = {}
    for function, place, count in zip(
        [*functions, _NAMELESS], [*subsystems(symbols), KERNEL], counts.tolist(), strict=True
    ):
        if count:
            times[function] = times.get(function, 0) + count * profile.instruction_ns
            places.setdefault(function, place)
    if profile.sampled:
        times = {function: time_ns for function, time_ns in times.items() if not _IDLE.fullmatch(function.name)}
    programs = {**(programs or {}), **profile.programs}
    pages, of = np.unique(profile.pages[~in_kernel], return_inverse=True)
    sums = np.zeros(len(pages), np.int64)
    np.add.at(sums, of, profile.executed[~in_kernel].astype(np.int64))
    for page, count in zip(pages.tolist(), sums.tolist(), strict=True):
        if count:
            program = Function(programs.get(page, _UNKNOWN), PROGRAMS)
            times[program] = times.get(program, 0) + count * profile.instruction_ns
            places[program] = PROGRAMS
    sorted_names = {function: tuple(sorted(spellings)) for function, spellings in names.items()}
    busy_ns = sum(times.values()) if profile.sampled else profile.busy_ns
    period_ns = profile.instruction_ns if profile.sampled else 0
    return Executed(times, sorted_names, places, profile.window_ns, busy_ns, period_ns)


def base_name(name: str) -> str:
    """`foo.isra.0.cold` -> `foo`, and `foo_noprof`, as the kernel itself calls allocating functions since 6.10."""
    return _ADDED.sub("", name).removesuffix("_noprof") or name


def is_whole(name: str) -> bool:
    """Whether a name is that of a function or a clone of it, not of a part that was split off."""
    return _SPLIT_OFF.search(name) is None


PROGRAMS: Final = "programs"
KERNEL: Final = "kernel, elsewhere"
_ANCHORS: Final = {
    "init": "do_one_initcall calibrate_delay",
    "arch/arm": "__switch_to ftrace_caller arm_heavy_mb v7_dma_inv_range cpu_v7_do_idle cpu_ca15_set_pte_ext "
    "v7_flush_dcache_all imx_gpc_irq_mask omap_prm_vp_clear_txdone tegra_pm_set_cpu_in_lp2 vt8500_restart "
    "arm_copy_to_user arm_copy_from_user memcpy memset memmove memchr strchr __aeabi_idiv __udivsi3 "
    "do_page_fault kprobe_trap_handler",
    "kernel": "copy_process do_exit irq_enter __local_bh_enable_ip sys_kill worker_thread queue_work_on kthread "
    "notifier_call_chain module_put cgroup_attach_task padata_do_parallel static_key_slow_dec",
    "kernel/sched": "try_to_wake_up update_load_avg do_idle wait_woken __wake_up schedule __schedule io_schedule",
    "kernel/locking": "mutex_lock down_read _raw_spin_lock_irqsave _raw_spin_unlock_irqrestore down_write",
    "kernel/irq": "handle_irq_event handle_fasteoi_irq irq_set_affinity",
    "kernel/rcu": "rcu_core call_rcu",
    "kernel/dma": "dma_map_sg_attrs dma_alloc_attrs",
    "kernel/time": "__hrtimer_run_queues hrtimer_start_range_ns ktime_get tick_nohz_idle_enter",
    "kernel/events": "perf_event_task_tick perf_prepare_sample uprobe_register",
    "mm": "filemap_read generic_file_read_iter next_uptodate_folio mempool_alloc folio_add_lru shrink_folio_list "
    "kmalloc_slab page_address handle_mm_fault do_mmap vmalloc get_page_from_freelist kmem_cache_free "
    "page_counter_memparse balloon_page_putback hmm_vma_walk_test",
    "fs": "do_sys_open vfs_read vfs_write path_lookupat dput iget_locked mpage_readahead bdev_open_by_dev "
    "sync_filesystem seq_read_iter",
    # Built in, as `fsjoule kernel build` does.
    "fs/ext4": "ext4_get_group_number ext4_bg_has_super ext4_file_write_iter ext4_map_blocks ext4_xattr_get "
    "ext4_orphan_add ext4_init_orphan_info",
    "fs/jbd2": "jbd2_journal_start jbd2_journal_commit_transaction jbd2_journal_init_inode",
    "fs/btrfs": "btrfs_sync_fs btrfs_search_slot btrfs_lookup_csum btrfs_get_extent btrfs_readahead btrfs_submit_bio "
    "btrfs_delalloc_reserve_metadata btrfs_free_path",
    "fs/f2fs": "f2fs_sync_file f2fs_map_blocks f2fs_build_segment_manager",
    "fs/xfs": "xfs_bmapi_read xfs_file_write_iter xfs_trans_commit xfs_log_force",
    "fs/proc": "proc_reg_read proc_tid_base_readdir",
    "fs/kernfs": "kernfs_fop_readdir",
    "fs/sysfs": "sysfs_kf_read",
    "ipc": "shm_get_unmapped_area msg_rcu_free",
    "security": "keyctl_restrict_keyring security_file_open security_inode_rename avc_has_perm "
    "tomoyo_check_task_acl aa_get_buffer ima_calc_file_hash evm_revalidate_status",
    "crypto": "crypto_shash_update crypto_alloc_shash crypto_alg_tested crypto_register_rng drbg_kcapi_seed "
    "x509_load_certificate_list",
    "block": "bdev_open bio_alloc_bioset elv_rb_add submit_bio blk_mq_submit_bio blk_mq_free_tags wbt_track "
    "free_opal_dev",
    "io_uring": "io_uring_setup io_cqring_wait io_wq_cpu_online",
    "lib": "sg_next bin2hex copy_page_to_iter_nofault sysfs_streq mpi_copy zlib_updatewindow "
    "ZSTD_createCDict_advanced2 zstd_free_ddict sbitmap_weight crc32_body __crc32c_le sha256_update idr_alloc "
    "kobject_init radix_tree_lookup "
    "rb_insert_color strlen vsnprintf xas_load xas_destroy",
    "drivers": "gpiod_set_value clk_enable get_random_bytes device_add platform_probe regmap_write armpmu_free_irq",
    "drivers/tty": "tty_write uart_write imx_uart_start_tx",
    "drivers/mmc": "mmc_wait_for_req mmc_of_parse mmc_sdio_init_card",
    "net": "sock_alloc netif_rx ip_rcv tcp_sendmsg inet_create tls_alert_recv",
}
_FOLDERS: Final = {name: folder for folder, names in _ANCHORS.items() for name in names.split()}


def subsystems(symbols: Symbols) -> list[str]:
    """The folder of each symbol, in their order."""
    known = [
        (number, _FOLDERS[name])
        for number, (name, module) in enumerate(zip(symbols.names, symbols.modules, strict=True))
        if not module and name in _FOLDERS
    ]
    at = np.array([number for number, _ in known])
    own = [number for number, module in enumerate(symbols.modules) if not module]
    after = dict(zip(own, np.searchsorted(at, own, side="left").tolist(), strict=True)) if known else {}
    return [
        symbols.folders.get(module, module) if module else _between(known, number, after.get(number, 0))
        for number, module in enumerate(symbols.modules)
    ]


def _between(known: Sequence[tuple[int, str]], number: int, after: int) -> str:
    """The folder of a symbol; `after` is the first of the known that does not come before it."""
    if after < len(known) and known[after][0] == number:
        return known[after][1]
    if not 0 < after < len(known):
        return KERNEL
    return posixpath.commonpath([known[after - 1][1], known[after][1]]) or KERNEL
