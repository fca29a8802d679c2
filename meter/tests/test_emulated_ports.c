/* The two pseudo terminals. */

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "mark_port.h"
#include "monotonic.h"
#include "stream_port.h"

static char folder[] = "/tmp/fsjoule-ports-XXXXXX";
static char path[64];

static int open_link(void)
{
	const int fd = open(path, O_RDWR | O_NOCTTY | O_NONBLOCK);

	CHECK(fd >= 0);
	return fd;
}

static ssize_t read_all(int fd, uint8_t *bytes, size_t size)
{
	ssize_t total = 0;
	ssize_t got;

	/* What the master wrote reaches the slave through a work queue: give it time. */
	for (int i = 0; i < 100; i++) {
		while ((got = read(fd, bytes + total, size - (size_t)total)) > 0) {
			total += got;
			i = 0;
		}
		usleep(1000);
	}
	return total;
}

static void test_nothing_waits_for_a_reader_that_is_not_there(void)
{
	struct stream_port port;
	uint8_t bytes[16];
	int fd;

	CHECK(stream_port_open(&port, path));
	CHECK(pty_link(&port.pty));
	CHECK(stream_port_frame(&port, (const uint8_t *)"before", 7));
	fd = open_link();
	CHECK(stream_port_frame(&port, (const uint8_t *)"first", 6));
	CHECK(stream_port_frame(&port, (const uint8_t *)"\r\n\x03\x11", 5));
	CHECK_EQUAL(read_all(fd, bytes, sizeof(bytes)), 11);
	CHECK(memcmp(bytes, "first\0\r\n\x03\x11", 11) == 0);
	stream_port_frame(&port, (const uint8_t *)"unread", 7);
	close(fd);
	stream_port_frame(&port, (const uint8_t *)"between", 8);
	fd = open_link();
	stream_port_frame(&port, (const uint8_t *)"second", 7);
	CHECK_EQUAL(read_all(fd, bytes, sizeof(bytes)), 7);
	CHECK(memcmp(bytes, "second", 7) == 0);
	close(fd);
	pty_close(&port.pty);
	CHECK(access(path, F_OK) != 0);
}

static void test_a_reader_that_is_slow_gets_whole_frames(void)
{
	static uint8_t bytes[1 << 20];
	struct stream_port port;
	uint8_t frame[100];
	uint64_t dropped = 0;
	ssize_t size;
	int fd;

	CHECK(stream_port_open(&port, path));
	CHECK(pty_link(&port.pty));
	fd = open_link();
	memset(frame, 'x', sizeof(frame));
	frame[sizeof(frame) - 1] = 0;
	for (int i = 0; i < 5000; i++) {
		dropped += stream_port_frame(&port, frame, sizeof(frame)) ? 0u : 1u;
	}
	CHECK(dropped > 0);
	size = read_all(fd, bytes, sizeof(bytes));
	/* The end of the last one comes with the next frame. */
	CHECK(stream_port_frame(&port, frame, sizeof(frame)));
	size += read_all(fd, bytes + size, sizeof(bytes) - (size_t)size);
	CHECK_EQUAL(size % (ssize_t)sizeof(frame), 0);
	CHECK_EQUAL((uint64_t)size / sizeof(frame) + dropped, 5001);
	for (ssize_t i = 0; i < size; i++) {
		CHECK_EQUAL(bytes[i], i % 100 == 99 ? 0 : 'x');
	}
	close(fd);
	pty_close(&port.pty);
}

static void test_marks_have_their_time_and_outlive_their_writer(void)
{
	static struct mark_port port;
	const int64_t before_ns = monotonic_ns();
	const char *text = "S1\n";
	uint8_t byte;
	int64_t time_ns = 0;

	CHECK(mark_port_open(&port, path));
	CHECK(pty_link(&port.pty));
	for (int round = 0; round < 2; round++) {
		const int fd = open_link();

		CHECK_EQUAL(write(fd, text, 3), 3);
		close(fd);
		for (int i = 0; i < 1000 && port.input.count < 3; i++) {
			mark_port_read(&port);
			usleep(1000);
		}
		CHECK(!timed_bytes_take(&port.input, before_ns, &byte, &time_ns));
		for (int i = 0; i < 3; i++) {
			CHECK(timed_bytes_take(&port.input, INT64_MAX, &byte, &time_ns));
			CHECK_EQUAL(byte, text[i]);
			CHECK(time_ns > before_ns && time_ns <= monotonic_ns());
		}
		CHECK(!timed_bytes_take(&port.input, INT64_MAX, &byte, &time_ns));
	}
	mark_port_close(&port);
}

static void test_what_the_host_sends_arrives_as_it_is(void)
{
	static struct stream_port port;
	uint8_t sent[256];
	uint8_t byte;
	int64_t time_ns = 0;
	int fd;

	for (size_t i = 0; i < sizeof(sent); i++) {
		sent[i] = (uint8_t)i;
	}
	CHECK(stream_port_open(&port, path));
	CHECK(pty_link(&port.pty));
	stream_port_read(&port);
	CHECK_EQUAL(timed_bytes_next_ns(&port.input), INT64_MAX);
	fd = open_link();
	CHECK_EQUAL(write(fd, sent, sizeof(sent)), sizeof(sent));
	for (int i = 0; i < 1000 && port.input.count < sizeof(sent); i++) {
		stream_port_read(&port);
		usleep(1000);
	}
	for (size_t i = 0; i < sizeof(sent); i++) {
		CHECK(timed_bytes_take(&port.input, INT64_MAX, &byte, &time_ns));
		CHECK_EQUAL(byte, sent[i]);
	}
	CHECK(!timed_bytes_take(&port.input, INT64_MAX, &byte, &time_ns));
	close(fd);
	pty_close(&port.pty);
}

static void test_a_link_of_somebody_else_is_left_alone(void)
{
	struct stream_port first;
	struct stream_port second;
	struct stat status;

	CHECK(stream_port_open(&first, path));
	CHECK(pty_link(&first.pty));
	CHECK(stream_port_open(&second, path));
	CHECK(pty_link(&second.pty));
	pty_close(&first.pty);
	CHECK_EQUAL(stat(path, &status), 0);
	pty_close(&second.pty);
	CHECK(lstat(path, &status) != 0);
}

int main(void)
{
	CHECK(mkdtemp(folder) != NULL);
	snprintf(path, sizeof(path), "%s/link", folder);
	test_nothing_waits_for_a_reader_that_is_not_there();
	test_a_reader_that_is_slow_gets_whole_frames();
	test_marks_have_their_time_and_outlive_their_writer();
	test_what_the_host_sends_arrives_as_it_is();
	test_a_link_of_somebody_else_is_left_alone();
	rmdir(folder);
	return 0;
}
