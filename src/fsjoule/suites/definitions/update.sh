#!/bin/sh
# An update into the slot that is not booted, on a card with slots: `prepare FILE` copies it from the boot partition into
# this directory, `swupdate FILE` installs it. The board must have booted the slot that is first in order:
# after an update that is the new one.
set -e
slot=$(sed -n 's/.*rauc\.slot=\([AB]\).*/\1/p' /proc/cmdline)
case $slot in
    A) other=B part=4 ;;
    B) other=A part=2 ;;
    *) echo "the board has no slots: docs/updates.md"; exit 1 ;;
esac
case $1 in
    prepare)
        order=$(fw_printenv -n BOOT_ORDER)
        [ "${order%% *}" = "$slot" ] || { echo "slot $slot came up, and the order is $order"; exit 1; }
        fw_setenv "BOOT_${slot}_LEFT" 3 # this slot works
        mkdir -p /run/boot
        mount -o ro /dev/mmcblk0p1 /run/boot
        cp "/run/boot/$2" .
        umount /run/boot
        ;;
    swupdate)
        swupdate -k /etc/rauc/keyring.pem -B uboot -e "slots,$other" -i "$2"
        ;;
esac
[ "$1" = prepare ] || echo "wrote $(blockdev --getsize64 /dev/mmcblk0p$part) bytes"
