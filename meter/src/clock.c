/* The clock of an STM32 with a timer of 32 bits: it counts microseconds, channel 1 ends the ticks, channel 2 takes down
 * the time of each edge of the mark pin in hardware, whatever the processor does meanwhile.
 */
#define DT_DRV_COMPAT fsjoule_stm32_clock

#include "clock.h"

#include <errno.h>
#include <stm32_ll_tim.h>
#include <zephyr/drivers/clock_control/stm32_clock_control.h>
#include <zephyr/drivers/gpio.h>
#include <zephyr/drivers/pinctrl.h>
#include <zephyr/irq.h>
#include <zephyr/kernel.h>

#include "board.h"
#include "timer32.h"

#define TIMER_NODE DT_PARENT(DT_DRV_INST(0))
#define TIMER ((TIM_TypeDef *)DT_REG_ADDR(TIMER_NODE))

BUILD_ASSERT(DT_REG_ADDR(TIMER_NODE) == TIM2_BASE || DT_REG_ADDR(TIMER_NODE) == TIM5_BASE,
	     "only TIM2 and TIM5 have 32 bits, and their bus is APB1");

/* The timers of a divided bus run twice as fast as the bus. */
#define APB1_HZ (DT_PROP(DT_NODELABEL(rcc), clock_frequency) / STM32_APB1_PRESCALER)
#define TIMER_HZ (APB1_HZ * (STM32_APB1_PRESCALER == 1 ? 1 : 2))

BUILD_ASSERT(TIMER_HZ % 1000000 == 0, "the timer cannot count microseconds");

/* An edge must hold so many of the timer's cycles: spikes of less than 100 ns are none. */
#define EDGE_FILTER LL_TIM_IC_FILTER_FDIV1_N8

PINCTRL_DT_INST_DEFINE(0);

static const struct gpio_dt_spec pin = GPIO_DT_SPEC_GET_OR(BOARD_METER, mark_gpios, {0});

static uint64_t newest_us; /* no more than an hour ago: every tick brings it on */
static struct timer32_ticks ticks;
static clock_edge_callback *on_edge;
K_SEM_DEFINE(ticked, 0, 1);

static uint32_t counter(void)
{
	return LL_TIM_GetCounter(TIMER);
}

static void set_compare(uint32_t value)
{
	LL_TIM_OC_SetCompareCH1(TIMER, value);
	LL_TIM_ClearFlag_CC1(TIMER);
}

static const struct timer32_channel channel = {.counter = counter, .set_compare = set_compare};

uint64_t clock_us(void)
{
	const unsigned int key = irq_lock();
	const uint64_t now_us = timer32_after(newest_us, counter());

	newest_us = now_us;
	irq_unlock(key);
	return now_us;
}

/* --------------------------------------------------------------------------------------------------- interrupts */

static void take_edge(void)
{
	const uint32_t captured = LL_TIM_IC_GetCaptureCH2(TIMER);
	/* Another one came before this was read, and took its place. */
	const bool overtaken = LL_TIM_IsActiveFlag_CC2OVR(TIMER) != 0;

	LL_TIM_ClearFlag_CC2OVR(TIMER);
	on_edge(timer32_before(clock_us(), captured), gpio_pin_get_dt(&pin) > 0, overtaken ? 1 : 0);
}

static void on_timer(const void *context)
{
	ARG_UNUSED(context);
	if (LL_TIM_IsActiveFlag_CC1(TIMER) != 0) {
		/* With nobody in between: events and the sampling thread look at the time and the ticks, too. */
		const unsigned int key = irq_lock();

		timer32_matched(&ticks, &channel);
		irq_unlock(key);
		(void)clock_us();
		k_sem_give(&ticked);
	}
	/* Reading the captured value clears its flag. */
	if (LL_TIM_IsEnabledIT_CC2(TIMER) != 0 && LL_TIM_IsActiveFlag_CC2(TIMER) != 0) {
		take_edge();
	}
}

/* -------------------------------------------------------------------------------------------------------- ticks */

uint64_t clock_begin_ticks(uint32_t period_us)
{
	const unsigned int key = irq_lock();
	const uint64_t begin_us = clock_us();

	timer32_begin(&ticks, &channel, (uint32_t)begin_us, period_us);
	k_sem_reset(&ticked);
	LL_TIM_EnableIT_CC1(TIMER);
	irq_unlock(key);
	return begin_us;
}

static uint32_t take_ticks(void)
{
	const unsigned int key = irq_lock();
	const uint32_t elapsed = ticks.elapsed;

	ticks.elapsed = 0;
	irq_unlock(key);
	return elapsed;
}

uint32_t clock_wait_tick(void)
{
	uint32_t elapsed;

	/* The semaphore may tell of a tick that was taken together with the one before. */
	do {
		(void)k_sem_take(&ticked, K_FOREVER);
		elapsed = take_ticks();
	} while (elapsed == 0);
	return elapsed;
}

/* -------------------------------------------------------------------------------------------------------- start */

int clock_watch_edges(clock_edge_callback *callback)
{
	int error;

	if (pin.port == NULL) {
		return 0;
	}
	if (!gpio_is_ready_dt(&pin)) {
		return -ENODEV;
	}
	error = pinctrl_apply_state(PINCTRL_DT_INST_DEV_CONFIG_GET(0), PINCTRL_STATE_DEFAULT);
	if (error != 0) {
		return error;
	}
	on_edge = callback;
	LL_TIM_IC_SetActiveInput(TIMER, LL_TIM_CHANNEL_CH2, LL_TIM_ACTIVEINPUT_DIRECTTI);
	LL_TIM_IC_SetFilter(TIMER, LL_TIM_CHANNEL_CH2, EDGE_FILTER);
	LL_TIM_IC_SetPolarity(TIMER, LL_TIM_CHANNEL_CH2, LL_TIM_IC_POLARITY_BOTHEDGE);
	LL_TIM_CC_EnableChannel(TIMER, LL_TIM_CHANNEL_CH2);
	LL_TIM_ClearFlag_CC2(TIMER);
	LL_TIM_EnableIT_CC2(TIMER);
	return 0;
}

int clock_start(void)
{
	static const struct stm32_pclken clock = {
		.bus = DT_CLOCKS_CELL(TIMER_NODE, bus),
		.enr = DT_CLOCKS_CELL(TIMER_NODE, bits),
	};
	const int error = clock_control_on(DEVICE_DT_GET(STM32_CLOCK_CONTROL_NODE), (clock_control_subsys_t)&clock);

	if (error != 0) {
		return error;
	}
	LL_TIM_SetPrescaler(TIMER, TIMER_HZ / 1000000 - 1);
	LL_TIM_SetAutoReload(TIMER, UINT32_MAX);
	/* The prescaler counts from here on. */
	LL_TIM_GenerateEvent_UPDATE(TIMER);
	IRQ_CONNECT(DT_IRQN(TIMER_NODE), DT_IRQ(TIMER_NODE, priority), on_timer, NULL, 0);
	irq_enable(DT_IRQN(TIMER_NODE));
	LL_TIM_EnableCounter(TIMER);
	return 0;
}
