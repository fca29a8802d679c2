#include "timed_bytes.h"

#include <unistd.h>

#include "monotonic.h"

void timed_bytes_put(struct timed_bytes *bytes, uint8_t byte, int64_t time_ns)
{
	const size_t at = (bytes->first + bytes->count) % TIMED_BYTES_MAX;

	if (bytes->count < TIMED_BYTES_MAX) {
		bytes->byte[at] = byte;
		bytes->time_ns[at] = time_ns;
		bytes->count++;
	}
}

void timed_bytes_read(struct timed_bytes *bytes, int fd)
{
	uint8_t got[64];
	ssize_t size;
	const int64_t now_ns = monotonic_ns();

	while (bytes->count + sizeof(got) <= TIMED_BYTES_MAX && (size = read(fd, got, sizeof(got))) > 0) {
		for (ssize_t i = 0; i < size; i++) {
			timed_bytes_put(bytes, got[i], now_ns);
		}
	}
}

bool timed_bytes_take(struct timed_bytes *bytes, int64_t before_ns, uint8_t *byte, int64_t *time_ns)
{
	if (timed_bytes_next_ns(bytes) >= before_ns) {
		return false;
	}
	*byte = bytes->byte[bytes->first];
	*time_ns = bytes->time_ns[bytes->first];
	bytes->first = (bytes->first + 1) % TIMED_BYTES_MAX;
	bytes->count--;
	return true;
}

int64_t timed_bytes_next_ns(const struct timed_bytes *bytes)
{
	return bytes->count == 0 ? INT64_MAX : bytes->time_ns[bytes->first];
}
