# U-Boot chooses a slot, as RAUC's contrib/uboot.sh does. Debian's U-Boot for this board keeps its variables in one file on
# a FAT partition, which a power cut can destroy. So this script has two copies on the card, in the format of U-Boot's
# redundant environment (env/common.c, struct environment_s): CRC-32, a flag that counts the writes, and the variables.
# A write goes to the older copy. fw_setenv does the same: root/etc/fw_env.config.
# `first`, `second` (sectors), `arguments`, `kernel` and `start` are set before this text.

setenv copy ${fdt_addr_r}
setexpr flag_at ${copy} + 4
setexpr data ${copy} + 5
setexpr crc ${copy} + 1000
# crc32 stores the most significant byte first, the copy has the least significant one first.
setexpr crc1 ${crc} + 1
setexpr crc2 ${crc} + 2
setexpr crc3 ${crc} + 3
setexpr turned ${crc} + 4
setexpr turned1 ${crc} + 5
setexpr turned2 ${crc} + 6
setexpr turned3 ${crc} + 7
setenv sum 'crc32 ${data} ffb ${crc}; cp.b ${crc} ${turned3} 1; cp.b ${crc1} ${turned2} 1; cp.b ${crc2} ${turned1} 1; cp.b ${crc3} ${turned} 1'

setenv flag
setenv older ${first}
mmc dev 0
for sector in ${first} ${second}; do
  setenv good 0
  if mmc read ${copy} ${sector} 8; then
    run sum
    if itest.l *${copy} == *${turned}; then setenv good 1; fi
  fi
  if test ${good} = 1; then
    setexpr.b this *${flag_at}
    if test -n "${flag}"; then
      # The second copy is newer if its flag is the next one, which after 255 is 0.
      if test ${flag} = ff; then setenv next 0; else setexpr next ${flag} + 1; fi
      if itest ${this} == ${next}; then setenv newer 1; else setenv newer 0; fi
    else
      setenv newer 1
    fi
    if test ${newer} = 1; then
      setenv flag ${this}
      env import -b ${data} ffb BOOT_ORDER BOOT_A_LEFT BOOT_B_LEFT
      if test ${sector} = ${first}; then setenv older ${second}; else setenv older ${first}; fi
    fi
  fi
done
test -n "${flag}" || setenv flag 0
setenv save 'mw.b ${copy} 0 1000; env export -b -s ffb ${data} BOOT_ORDER BOOT_A_LEFT BOOT_B_LEFT; run sum; cp.b ${turned} ${copy} 4; setexpr flag ${flag} + 1; mw.b ${flag_at} ${flag}; mmc write ${copy} ${older} 8; if test ${older} = ${first}; then setenv older ${second}; else setenv older ${first}; fi'

test -n "${BOOT_ORDER}" || setenv BOOT_ORDER "A B"
test -n "${BOOT_A_LEFT}" || setenv BOOT_A_LEFT 3
test -n "${BOOT_B_LEFT}" || setenv BOOT_B_LEFT 3

# Not every board can reset itself here: the next slot is tried at once.
while true; do
  setenv slot
  for BOOT_SLOT in ${BOOT_ORDER}; do
    if test -n "${slot}"; then
      # the first one is taken
    elif test "x${BOOT_SLOT}" = "xA"; then
      if test 0x${BOOT_A_LEFT} -gt 0; then
        setexpr BOOT_A_LEFT ${BOOT_A_LEFT} - 1
        setenv slot A; setenv part 2
      fi
    elif test "x${BOOT_SLOT}" = "xB"; then
      if test 0x${BOOT_B_LEFT} -gt 0; then
        setexpr BOOT_B_LEFT ${BOOT_B_LEFT} - 1
        setenv slot B; setenv part 4
      fi
    fi
  done

  if test -n "${slot}"; then
    run save
    echo "fsjoule: slot ${slot}"
    setenv bootargs "${arguments} root=/dev/mmcblk0p${part} rauc.slot=${slot}"
    if load mmc 0:${part} ${kernel_addr_r} /boot/${kernel}; then
      if load mmc 0:${part} ${fdt_addr_r} /boot/board.dtb; then
        if load mmc 0:${part} ${ramdisk_addr_r} /boot/initrd.img; then
          ${start} ${kernel_addr_r} ${ramdisk_addr_r}:${filesize} ${fdt_addr_r}
        fi
      fi
    fi
    echo "fsjoule: slot ${slot} cannot be started"
  else
    echo "fsjoule: no slot is left, each gets 3 starts again"
    setenv BOOT_A_LEFT 3
    setenv BOOT_B_LEFT 3
    run save
    sleep 10
  fi
done
