#include <zephyr/drivers/gpio/gpio_emul.h>
#include <zephyr/ztest.h>

#include "board.h"
#include "watching.h"

static const struct gpio_dt_spec led = GPIO_DT_SPEC_GET(BOARD_METER, heartbeat_gpios);

static bool is_lit(void)
{
	return gpio_emul_output_get(led.port, led.pin) == ((led.dt_flags & GPIO_ACTIVE_LOW) != 0 ? 0 : 1);
}

/* In three seconds: how often it changes, and whether it is lit at the end. */
static int changes(void)
{
	bool last = is_lit();
	int count = 0;

	for (int i = 0; i < 30; i++) {
		watch(100);
		count += is_lit() != last ? 1 : 0;
		last = is_lit();
	}
	return count;
}

ZTEST(led, test_it_blinks_once_a_second_while_samples_are_taken)
{
	zassert_within(changes(), 6, 1);
}

ZTEST(led, test_it_is_dark_while_the_meter_is_stopped)
{
	zassert_equal(command(FSJ_COMMAND_STOP, NULL, 0).status, FSJ_REPLY_DONE);
	watch(100);
	zassert_equal(changes(), 0);
	zassert_false(is_lit());
	zassert_equal(command(FSJ_COMMAND_START, NULL, 0).status, FSJ_REPLY_DONE);
	zassert_within(changes(), 6, 1);
}

ZTEST(led, test_it_is_dark_while_the_chip_is_gone)
{
	made_host.unplugged = true;
	watch(100);
	zassert_equal(changes(), 0);
	zassert_false(is_lit());
	made_host.unplugged = false;
	zassert_within(changes(), 6, 1);
}

ZTEST_SUITE(led, NULL, begin, begin_test, NULL, NULL);
