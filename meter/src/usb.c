#include "usb.h"

#include <zephyr/device.h>
#include <zephyr/usb/usbd.h>

USBD_DEVICE_DEFINE(meter_usb, DEVICE_DT_GET(DT_NODELABEL(zephyr_udc0)), CONFIG_FSJOULE_USB_VID, CONFIG_FSJOULE_USB_PID);

USBD_DESC_LANG_DEFINE(language);
USBD_DESC_MANUFACTURER_DEFINE(manufacturer, "fsjoule");
USBD_DESC_PRODUCT_DEFINE(product, "fsjoule power meter");
/* The chip's whole identity: the serial number in the info frame is its end. */
USBD_DESC_SERIAL_NUMBER_DEFINE(serial_number);
USBD_DESC_CONFIG_DEFINE(configuration_text, "meter");

/* The host powers it; USB wants the current in units of 2 mA. */
USBD_CONFIGURATION_DEFINE(configuration, 0, CONFIG_FSJOULE_USB_MA / 2, &configuration_text);

static int describe(void)
{
	struct usbd_desc_node *const texts[] = {&language, &manufacturer, &product, &serial_number};
	int error = 0;

	for (size_t i = 0; i < ARRAY_SIZE(texts) && error == 0; i++) {
		error = usbd_add_descriptor(&meter_usb, texts[i]);
	}
	return error;
}

int usb_start(void)
{
	int error = describe();

	if (error == 0) {
		error = usbd_add_configuration(&meter_usb, USBD_SPEED_FS, &configuration);
	}
	if (error == 0) {
		/* By name: the function that takes all of them has other parameters in each Zephyr. */
		error = usbd_register_class(&meter_usb, "cdc_acm_0", USBD_SPEED_FS, 1);
	}
	if (error == 0) {
		/* CDC ACM has two interfaces, which an association holds together. */
		error = usbd_device_set_code_triple(&meter_usb, USBD_SPEED_FS, USB_BCC_MISCELLANEOUS, 0x02, 0x01);
	}
	if (error == 0) {
		error = usbd_init(&meter_usb);
	}
	return error == 0 ? usbd_enable(&meter_usb) : error;
}
