/** @file
 * The meter as a device on USB, where its stream is there (snippets/usb-stream).
 */
#ifndef FSJOULE_APP_USB_H
#define FSJOULE_APP_USB_H

#if defined(CONFIG_USB_DEVICE_STACK_NEXT)

/** Show the meter to the host.
 *
 * @return 0, or a negative errno
 */
int usb_start(void);

#else

static inline int usb_start(void)
{
	return 0;
}

#endif

#endif
