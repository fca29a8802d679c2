#!/bin/sh
# An update into the slot that is not booted, on a card with slots: `prepare FILE` copies it from the boot partition into
# this directory, `swupdate FILE` or `rauc FILE` installs it, `confirm` says in the new version that it works. The board
# must have booted the slot that is first in order, which after an update is the new one, but with `prepare FILE any`.
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
        [ "${order%% *}" = "$slot" ] || [ "$3" = any ] || [ -e /run/updated ] || { echo "slot $slot came up, and the order is $order"; exit 1; }
        printf 'BOOT_ORDER %s %s\nBOOT_%s_LEFT 3\n' $slot $other $slot | fw_setenv -s - # this slot works
        mkdir -p /run/boot
        mount -o ro /dev/mmcblk0p1 /run/boot
        cp "/run/boot/$2" .
        umount /run/boot
        ;;
    swupdate)
        swupdate -k /etc/rauc/keyring.pem -B uboot -e "slots,$other" -i "$2"
        ;;
    rauc)
        # RAUC's client and service speak over D-Bus. The board has no bus of the system.
        modprobe -a loop dm-verity squashfs
        export DBUS_STARTER_BUS_TYPE=session DBUS_SESSION_BUS_ADDRESS=unix:path=/run/bus
        cat > /run/bus.conf << 'END'
<busconfig><type>session</type><listen>unix:path=/run/bus</listen><auth>EXTERNAL</auth><policy context="default">
<allow send_destination="*"/><allow receive_sender="*"/><allow own="*"/></policy></busconfig>
END
        [ -e /run/bus ] || dbus-daemon --config-file=/run/bus.conf --fork
        rauc service &
        tries=0
        until rauc status > /dev/null 2>&1; do
            tries=$((tries + 1))
            [ $tries -lt 60 ] || { echo "RAUC's service does not answer"; exit 1; }
            sleep 1
        done
        status=0
        rauc install "$2" || status=$?
        kill $!
        [ $status = 0 ] || exit $status
        ;;
    confirm)
        fw_setenv "BOOT_${slot}_LEFT" 3
        exit
        ;;
esac
[ "$1" = prepare ] || { touch /run/updated; echo "wrote $(blockdev --getsize64 /dev/mmcblk0p$part) bytes"; }
