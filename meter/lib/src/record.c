#include "record.h"

#include "fsjoule/crc32.h"
#include "little_endian.h"

/* Little endian:
 *
 *    0  u32  magic, "FSJR"
 *    4  u8   version of this layout
 *    5  u8   range, as in CONFIG
 *    6  u16  1: the bus voltage's range is 32 V; 0: 16 V, as in all records of older versions
 *    8  u32  generation
 *   12  u32  rate_hz
 *   16  u32  shunt_uohm
 *   20  i32  shunt_offset_nv, current_gain_ppm, bus_gain_ppm
 *   32  u32  gain_uncertainty_ppm, zero_date, gain_date
 *   44       0
 *   60  u32  CRC-32 of the bytes before
 */
#define MAGIC 0x524A5346u
#define VERSION 1u
#define USED_BYTES 44u
#define CRC_AT (FSJ_RECORD_BYTES - 4u)

void fsj_record_encode(const struct fsj_record *record, uint8_t bytes[FSJ_RECORD_BYTES])
{
	const struct fsj_settings *settings = &record->settings;
	const struct fsj_calibration *calibration = &settings->calibration;

	fsj_put_u32(bytes, MAGIC);
	bytes[4] = VERSION;
	bytes[5] = (uint8_t)settings->range;
	fsj_put_u16(bytes + 6, settings->bus_32v ? 1 : 0);
	fsj_put_u32(bytes + 8, record->generation);
	fsj_put_u32(bytes + 12, settings->rate_hz);
	fsj_put_u32(bytes + 16, settings->shunt_uohm);
	fsj_put_u32(bytes + 20, (uint32_t)calibration->shunt_offset_nv);
	fsj_put_u32(bytes + 24, (uint32_t)calibration->current_gain_ppm);
	fsj_put_u32(bytes + 28, (uint32_t)calibration->bus_gain_ppm);
	fsj_put_u32(bytes + 32, calibration->gain_uncertainty_ppm);
	fsj_put_u32(bytes + 36, calibration->zero_date);
	fsj_put_u32(bytes + 40, calibration->gain_date);
	for (uint32_t i = USED_BYTES; i < CRC_AT; i++) {
		bytes[i] = 0;
	}
	fsj_put_u32(bytes + CRC_AT, fsj_crc32(bytes, CRC_AT));
}

bool fsj_record_decode(const uint8_t bytes[FSJ_RECORD_BYTES], struct fsj_record *record)
{
	struct fsj_settings *settings = &record->settings;
	struct fsj_calibration *calibration = &settings->calibration;

	if (fsj_get_u32(bytes) != MAGIC || bytes[4] != VERSION || bytes[5] > FSJ_INA219_RANGE_320MV ||
	    fsj_get_u16(bytes + 6) > 1 ||
	    fsj_get_u32(bytes + CRC_AT) != fsj_crc32(bytes, CRC_AT)) {
		return false;
	}
	record->generation = fsj_get_u32(bytes + 8);
	settings->range = (enum fsj_ina219_range)bytes[5];
	settings->bus_32v = fsj_get_u16(bytes + 6) == 1;
	settings->rate_hz = fsj_get_u32(bytes + 12);
	settings->shunt_uohm = fsj_get_u32(bytes + 16);
	calibration->shunt_offset_nv = fsj_get_i32(bytes + 20);
	calibration->current_gain_ppm = fsj_get_i32(bytes + 24);
	calibration->bus_gain_ppm = fsj_get_i32(bytes + 28);
	calibration->gain_uncertainty_ppm = fsj_get_u32(bytes + 32);
	calibration->zero_date = fsj_get_u32(bytes + 36);
	calibration->gain_date = fsj_get_u32(bytes + 40);
	return record->generation != 0 && fsj_settings_valid(settings);
}
