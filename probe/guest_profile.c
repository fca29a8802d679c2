/* Counts the instructions that a board in guest time executes between the marks of a measurement: QEMU counts them all, and
 * what is here counts them by address.
 *
 * The probe (guest_probe.c) is this same library. QEMU loads it a second time as a TCG plugin if the board is told to
 * count: the two then share what is here. Each instruction that is translated gets a counter, which the translated code
 * itself adds to. Instructions, and not translation blocks, are counted because a block can be left in its middle: an
 * access to a device ends it there, and it is entered again behind. Nothing the guest can see depends on any of this.
 *
 * QEMU ends by SIGKILL, so that nothing can be written at its end: each window is written to a file of its own at its
 * stop mark, whole or not at all. docs/virtual-board.md describes the file.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "guest_profile.h"

/* ------------------------------------------------------------- QEMU's plugin interface, version 1 and from version 2 on */

#define INLINE_ADD_U64 0

/* Since version 2 QEMU has the memory that translated code adds to: a scoreboard, an entry for each CPU. */
struct scoreboard_u64 {
	void *scoreboard;
	size_t offset; /* in a CPU's entry */
};

typedef void (*translated_fn)(uint64_t id, void *block);

void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, translated_fn callback) __attribute__((weak));
size_t qemu_plugin_tb_n_insns(const void *block) __attribute__((weak));
void *qemu_plugin_tb_get_insn(const void *block, size_t index) __attribute__((weak));
uint64_t qemu_plugin_insn_vaddr(const void *instruction) __attribute__((weak));
void *qemu_plugin_insn_haddr(const void *instruction) __attribute__((weak));
void qemu_plugin_register_vcpu_tb_exec_inline(void *block, int operation, void *counter, uint64_t add) __attribute__((weak));
void qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(void *block, int operation, struct scoreboard_u64 counter, uint64_t add)
	__attribute__((weak));
void qemu_plugin_register_vcpu_insn_exec_inline(void *instruction, int operation, void *counter, uint64_t add)
	__attribute__((weak));
void qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(void *instruction, int operation, struct scoreboard_u64 counter,
							 uint64_t add) __attribute__((weak));
void *qemu_plugin_scoreboard_new(size_t entry_bytes) __attribute__((weak));
void *qemu_plugin_scoreboard_find(void *scoreboard, unsigned int cpu) __attribute__((weak));
int64_t icount_get_raw(void) __attribute__((weak));
int64_t icount_to_ns(int64_t icount) __attribute__((weak));
bool qemu_in_vcpu_thread(void) __attribute__((weak));

/* QEMU looks for both by name. */
extern int qemu_plugin_version;
int qemu_plugin_version = 1;
int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv);

/* QEMU asks for the version when it has loaded the plugin, and refuses those that it has no more. */
__attribute__((constructor)) static void choose_version(void)
{
	if (qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu) {
		qemu_plugin_version = 2;
	}
}

/* ----------------------------------------------------------------------------------------------------- the counters */

/* Where programs end and the kernel's modules begin on the emulated board (32 bits, CONFIG_VMSPLIT_3G). */
#define KERNEL_BEGIN UINT64_C(0xbf000000)
#define PAGE_BYTES 4096
#define CHUNK 65536
#define FIRST_BUCKETS 262144

struct counter {
	uint64_t begun; /* what was executed from power-on to the start mark */
	uint64_t ended; /* and at the last mark */
	uint64_t address;
	uint64_t page; /* what page of a program it is in: a hash of the page's bytes. 0 for the kernel */
};

/* Translated code holds the addresses of `executed`, and QEMU those of its scoreboards: chunks never move. */
static struct chunk {
	struct counter *counters;
	uint64_t *executed; /* of each counter, since power-on */
	void *scoreboard; /* that has `executed` for the only CPU that runs in guest time, the first */
} *chunks;
static size_t counters;
static uint32_t *buckets; /* of counters, by their number from 1 */
static size_t bucket_count;

static void give_up(const char *what)
{
	fprintf(stderr, "fsjoule guest profile: %s\n", what);
	_exit(70);
}

static struct counter *counter_at(size_t number)
{
	return &chunks[number / CHUNK].counters[number % CHUNK];
}

static void make_chunk(void)
{
	struct chunk *made;

	chunks = realloc(chunks, (counters / CHUNK + 1) * sizeof(*chunks));
	if (chunks == NULL) {
		give_up("no memory is left for its counters");
	}
	made = &chunks[counters / CHUNK];
	made->counters = calloc(CHUNK, sizeof(*made->counters));
	if (qemu_plugin_version == 1) {
		made->executed = calloc(CHUNK, sizeof(*made->executed));
	} else {
		made->scoreboard = qemu_plugin_scoreboard_new(CHUNK * sizeof(*made->executed));
		made->executed = qemu_plugin_scoreboard_find(made->scoreboard, 0);
	}
	if (made->counters == NULL || made->executed == NULL) {
		give_up("no memory is left for its counters");
	}
}

static void count_executions(void *instruction, size_t number)
{
	const struct chunk *chunk = &chunks[number / CHUNK];

	if (qemu_plugin_version == 1) {
		qemu_plugin_register_vcpu_insn_exec_inline(instruction, INLINE_ADD_U64, &chunk->executed[number % CHUNK], 1);
	} else {
		const struct scoreboard_u64 counter = {chunk->scoreboard, number % CHUNK * sizeof(*chunk->executed)};

		qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(instruction, INLINE_ADD_U64, counter, 1);
	}
}

static uint64_t mixed(uint64_t a, uint64_t b)
{
	uint64_t x = (a ^ (b * UINT64_C(0x9e3779b97f4a7c15))) * UINT64_C(0xff51afd7ed558ccd);

	return x ^ (x >> 32);
}

static uint32_t *bucket_of(uint64_t address, uint64_t page)
{
	size_t at = mixed(address, page) & (bucket_count - 1);

	while (buckets[at] != 0) {
		const struct counter *found = counter_at(buckets[at] - 1);

		if (found->address == address && found->page == page) {
			break;
		}
		at = (at + 1) & (bucket_count - 1);
	}
	return &buckets[at];
}

static void make_buckets(size_t count)
{
	free(buckets);
	buckets = calloc(count, sizeof(*buckets));
	if (buckets == NULL) {
		give_up("no memory is left for its counters");
	}
	bucket_count = count;
	for (size_t i = 0; i < counters; i++) {
		*bucket_of(counter_at(i)->address, counter_at(i)->page) = (uint32_t)(i + 1);
	}
}

/* The number of an instruction's counter. */
static size_t counter_of(uint64_t address, uint64_t page)
{
	uint32_t *bucket = bucket_of(address, page);
	struct counter *made;

	if (*bucket != 0) {
		return *bucket - 1;
	}
	if (counters % CHUNK == 0) {
		make_chunk();
	}
	made = counter_at(counters++);
	made->address = address;
	made->page = page;
	*bucket = (uint32_t)counters;
	if (counters * 2 > bucket_count) {
		make_buckets(bucket_count * 2);
	}
	return counters - 1;
}

/* FNV-1a over words of 64 bits. */
static uint64_t hash_of(const void *instruction_bytes)
{
	const uint64_t *page = (const uint64_t *)((uintptr_t)instruction_bytes & ~(uintptr_t)(PAGE_BYTES - 1));
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < PAGE_BYTES / sizeof(*page); i++) {
		hash = (hash ^ page[i]) * UINT64_C(0x100000001b3);
	}
	return hash == 0 ? 1 : hash;
}

static uint64_t page_of(uint64_t address, const void *bytes)
{
	return address >= KERNEL_BEGIN || bytes == NULL ? 0 : hash_of(bytes);
}

/* ----------------------------------------------------------------------------------- programs apart from the kernel */

/* The instructions of blocks of programs, which are few: it takes one addition a block. A block that is left in its middle,
 * by a page fault, counts whole. With the argument `programs=on` nothing else is counted.
 */
static uint64_t *of_programs;
static struct scoreboard_u64 board_of_programs;

static bool is_program(uint64_t address)
{
	return address < KERNEL_BEGIN || (address >> 32 != 0 && address >> 63 == 0);
}

static void count_block(void *block)
{
	const size_t count = qemu_plugin_tb_n_insns(block);

	if (!is_program(qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(block, 0)))) {
		return;
	}
	if (qemu_plugin_version == 1) {
		qemu_plugin_register_vcpu_tb_exec_inline(block, INLINE_ADD_U64, of_programs, count);
	} else {
		qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(block, INLINE_ADD_U64, board_of_programs, count);
	}
}

static void on_translated_block(uint64_t id, void *block)
{
	(void)id;
	count_block(block);
}

static void make_counter_of_programs(void)
{
	static uint64_t counter;

	of_programs = &counter;
	if (qemu_plugin_version != 1) {
		board_of_programs.scoreboard = qemu_plugin_scoreboard_new(sizeof(counter));
		of_programs = qemu_plugin_scoreboard_find(board_of_programs.scoreboard, 0);
	}
}

static void on_translated(uint64_t id, void *block)
{
	const size_t count = qemu_plugin_tb_n_insns(block);
	uint64_t known = UINT64_MAX, page = 0;

	(void)id;
	count_block(block);
	for (size_t i = 0; i < count; i++) {
		void *instruction = qemu_plugin_tb_get_insn(block, i);
		const uint64_t address = qemu_plugin_insn_vaddr(instruction);

		if (address / PAGE_BYTES != known) {
			known = address / PAGE_BYTES;
			page = page_of(address, qemu_plugin_insn_haddr(instruction));
		}
		count_executions(instruction, counter_of(address, page));
	}
}

int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv)
{
	(void)info;
	if (!qemu_plugin_register_vcpu_tb_trans_cb || !qemu_plugin_tb_n_insns || !qemu_plugin_tb_get_insn ||
	    !qemu_plugin_insn_vaddr || !qemu_plugin_insn_haddr ||
	    (qemu_plugin_version == 1 ? !qemu_plugin_register_vcpu_insn_exec_inline || !qemu_plugin_register_vcpu_tb_exec_inline
				      : !qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu || !qemu_plugin_scoreboard_new || !qemu_plugin_scoreboard_find)) {
		give_up("this QEMU has no plugins that count instructions");
	}
	make_counter_of_programs();
	if (argc > 0 && strcmp(argv[0], "programs=on") == 0) {
		qemu_plugin_register_vcpu_tb_trans_cb(id, on_translated_block);
		return 0;
	}
	make_buckets(FIRST_BUCKETS);
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translated);
	return 0;
}

/* ------------------------------------------------------------------------------- instructions that the host interrupts */

/* QEMU leaves an instruction that accesses a device, and begins it again as the last one of a block, which does not count
 * it: it has a counter behind it already. If the host wants the CPU's attention in between, QEMU forgets that and begins
 * it once more in an ordinary block, which counts it again (cpu_io_recompile and cflags_next_tb, accel/tcg). When depends on
 * the host. QEMU leaves an instruction by a jump: of two jumps with no instruction executed in between, the second one
 * leaves an instruction that was counted twice. An interrupt in between executes its vector, without counting that one.
 */
static int64_t begun_again;

void __longjmp_chk(struct __jmp_buf_tag place[1], int value) __attribute__((noreturn));

void __longjmp_chk(struct __jmp_buf_tag place[1], int value)
{
	static __typeof__(&__longjmp_chk) real;
	static int64_t last_icount = -1;

	if (real == NULL) {
		real = (__typeof__(&__longjmp_chk))dlsym(RTLD_NEXT, "__longjmp_chk");
	}
	if (chunks != NULL && qemu_in_vcpu_thread()) {
		const int64_t icount = icount_get_raw();

		begun_again += icount == last_icount;
		last_icount = icount;
	}
	real(place, value);
	__builtin_unreachable();
}

/* ------------------------------------------------------------------------------------------------------ the windows */

#define START 'S'
#define STOP 'E'
/* Around a mark that has a check, which the wire between QEMU and this library cannot need. */
#define CHECKED '~'
#define NAMES "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

struct header {
	char magic[8];
	uint64_t records;
	int64_t start_ns; /* the guest's time at the two marks */
	int64_t stop_ns;
	int64_t busy_ns; /* the time in between for which instructions were executed, by QEMU's own count of them */
	int64_t instruction_ns;
	int64_t of_programs; /* of the executed instructions; -1 if they were not counted apart */
	int64_t begun_again; /* counts by address that the host's interruptions added */
};

struct record {
	uint64_t address;
	uint64_t page;
	uint64_t executed;
};

_Static_assert(sizeof(struct header) == 64 && sizeof(struct record) == 24, "as docs/virtual-board.md has them");

/* The line of the last mark so far, and where the guest was at its first byte: a mark comes when that does. */
static char line[64];
static size_t length;
static int64_t line_ns, line_icount, line_of_programs, line_begun_again;
/* The same for the start mark. */
static int64_t start_ns, start_icount, start_of_programs, start_begun_again;
static bool open_window;

static bool write_records(FILE *file)
{
	struct header header = {
		.magic = "FSJPROF",
		.start_ns = start_ns,
		.stop_ns = line_ns,
		.busy_ns = icount_to_ns(line_icount) - icount_to_ns(start_icount),
		.instruction_ns = icount_to_ns(1),
		.of_programs = of_programs == NULL ? -1 : line_of_programs - start_of_programs,
		.begun_again = line_begun_again - start_begun_again,
	};

	for (size_t i = 0; i < counters; i++) {
		header.records += counter_at(i)->ended != counter_at(i)->begun;
	}
	if (fwrite(&header, sizeof(header), 1, file) != 1) {
		return false;
	}
	for (size_t i = 0; i < counters; i++) {
		const struct counter *each = counter_at(i);
		const struct record record = {each->address, each->page, each->ended - each->begun};

		if (record.executed != 0 && fwrite(&record, sizeof(record), 1, file) != 1) {
			return false;
		}
	}
	return true;
}

/* A window that cannot be written leaves no file, and whoever asks for its profile says so. */
static void write_window(const char *name)
{
	const char *folder = getenv("FSJOULE_PROBE_PROFILES");
	char path[4096], partial[sizeof(path) + 8];
	FILE *file;
	bool whole;

	if (folder == NULL || snprintf(path, sizeof(path), "%s/%s", folder, name) >= (int)sizeof(path)) {
		return;
	}
	snprintf(partial, sizeof(partial), "%s.new", path);
	file = fopen(partial, "wbe");
	if (file == NULL) {
		return;
	}
	whole = write_records(file);
	if (fclose(file) != 0 || !whole || rename(partial, path) != 0) {
		unlink(partial);
	}
}

static void on_first_byte(int64_t time_ns)
{
	line_ns = time_ns;
	line_icount = icount_get_raw();
	line_of_programs = of_programs == NULL ? 0 : (int64_t)*of_programs;
	line_begun_again = begun_again;
	for (size_t i = 0; i < counters; i++) {
		counter_at(i)->ended = chunks[i / CHUNK].executed[i % CHUNK];
	}
}

/* The window began at the first byte of this line. A counter that came since then has ended at 0. */
static void begin_window(void)
{
	start_ns = line_ns;
	start_icount = line_icount;
	start_of_programs = line_of_programs;
	start_begun_again = line_begun_again;
	for (size_t i = 0; i < counters; i++) {
		counter_at(i)->begun = counter_at(i)->ended;
	}
}

/* The mark in a line: its text without a check. */
static char *mark_in_line(void)
{
	char *check;

	line[length] = '\0';
	if (line[0] != CHECKED) {
		return line;
	}
	check = strrchr(line, CHECKED);
	if (check != line) {
		*check = '\0';
	}
	return line + 1;
}

void profile_mark_byte(unsigned char byte, int64_t time_ns)
{
	const char *mark;

	if (byte != '\n') {
		if (length == 0) {
			on_first_byte(time_ns);
		}
		if (length < sizeof(line) - 1) {
			line[length++] = byte;
		}
		return;
	}
	mark = mark_in_line();
	/* The name becomes that of a file. */
	if (mark[0] == STOP && open_window && strspn(mark, NAMES) == strlen(mark)) {
		write_window(mark + 1);
	}
	open_window = mark[0] == START;
	if (open_window) {
		begin_window();
	}
	length = 0;
}
