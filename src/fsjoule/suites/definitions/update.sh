#!/bin/sh
# An update into the slot that is not booted, on a card with slots: `prepare FILE` copies it from the boot partition into
# this directory, `rauc FILE` and `swupdate FILE` install it. The board must have booted the slot that is first in order:
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
    rauc)
        modprobe -a loop dm-mod dm-verity # it mounts its bundle
        # RAUC works in a service behind D-Bus, here on a bus of its own; dbus-run-session would unset the variable.
        dbus-run-session -- env DBUS_STARTER_BUS_TYPE=session sh -c '
            rauc service & service=$!
            tries=0
            until rauc status > /dev/null 2>&1; do
                tries=$((tries + 1))
                [ $tries -lt 50 ] && kill -0 $service || exit 1
                sleep 0.2
            done
            rauc install "$1"; status=$?
            kill $service; exit $status' sh "$PWD/$2"
        ;;
    swupdate)
        swupdate -k /etc/rauc/keyring.pem -B uboot -e "slots,$other" -i "$2"
        ;;
esac
[ "$1" = prepare ] || echo "wrote $(blockdev --getsize64 /dev/mmcblk0p$part) bytes"
