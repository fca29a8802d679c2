#!/usr/bin/env bash
# Builds the firmware with a Zephyr that is there already: `make firmware` and `make firmware-test`.
#
#   ZEPHYR_BASE              Zephyr's source; without it, a west workspace around this checkout
#   ZEPHYR_MODULES           modules where there is no west workspace: .../cmsis;.../hal_stm32
#   GNUARMEMB_TOOLCHAIN_PATH where bin/arm-none-eabi-gcc is; without it, Zephyr finds its SDK
set -euo pipefail

readonly meter=$(cd "$(dirname "$0")" && pwd)
readonly out=$(dirname "$meter")/build/firmware

find_zephyr() {
    if [ -z "${ZEPHYR_BASE:-}" ] && command -v west >/dev/null; then
        ZEPHYR_BASE=$(cd "$meter" && west list -f '{abspath}' zephyr 2>/dev/null) || true
    fi
    if [ -z "${ZEPHYR_BASE:-}" ] || [ ! -f "$ZEPHYR_BASE/share/zephyr-package/cmake/ZephyrConfig.cmake" ]; then
        echo "The firmware needs Zephyr (3.7 or later): set ZEPHYR_BASE, and ZEPHYR_MODULES to its modules cmsis and" \
            "hal_stm32, separated by ';'; or make a west workspace. docs/firmware.md says how." >&2
        exit 1
    fi
    export ZEPHYR_BASE
}

# build NAME SOURCE BOARD [CMAKE-OPTION...]: into build/firmware/NAME
build() {
    local name=$1 source=$2 board=$3
    shift 3
    echo "== firmware: $name ($board)"
    # Anew where another Zephyr was used: its cache would go on naming it.
    if ! grep -qsx "ZEPHYR_BASE:PATH=$ZEPHYR_BASE" "$out/$name/CMakeCache.txt"; then
        rm -rf "${out:?}/$name"
    fi
    cmake -G Ninja -S "$source" -B "$out/$name" "-DBOARD=$board" "$@" >"$out/$name.log" 2>&1 &&
        ninja -C "$out/$name" >>"$out/$name.log" 2>&1 || {
        tail -n 40 "$out/$name.log" >&2
        exit 1
    }
}

build_for_host() {
    ZEPHYR_TOOLCHAIN_VARIANT=host build "$@" native_sim/native/64
}

build_for_arm() {
    if [ -n "${GNUARMEMB_TOOLCHAIN_PATH:-}" ]; then
        local -x ZEPHYR_TOOLCHAIN_VARIANT=gnuarmemb
    fi
    build "$@" ${ZEPHYR_MODULES:+"-DZEPHYR_MODULES=$ZEPHYR_MODULES"}
}

build_host() {
    build_for_host host "$meter"
}

build_black_pill() {
    build_for_arm blackpill_f411ce "$meter" blackpill_f411ce
    # The linker says it only when it links.
    if grep -q '^Memory region' "$out/blackpill_f411ce.log"; then
        grep -E '^(Memory region| +(FLASH|S?RAM):)' "$out/blackpill_f411ce.log" | tail -n 3 >"$out/blackpill_f411ce.memory"
    fi
    cat "$out/blackpill_f411ce.memory"
}

has_arm_compiler() {
    [ -n "${GNUARMEMB_TOOLCHAIN_PATH:-}" ] || [ -n "${ZEPHYR_SDK_INSTALL_DIR:-}" ]
}

# QEMU does not end by itself. Its processor is about as fast as the Black Pill's: 8 ns an instruction.
run_clock_test() {
    if ! has_arm_compiler || ! command -v qemu-system-arm >/dev/null; then
        echo "== firmware: clock is not tested: set GNUARMEMB_TOOLCHAIN_PATH, and install qemu-system-arm"
        return
    fi
    rm -f "$out/clock.out"
    build_for_arm clock "$meter/tests/zephyr_clock" qemu_cortex_m3
    qemu-system-arm -machine lm3s6965evb -cpu cortex-m3 -display none -monitor none -net none \
        -icount shift=3,align=off,sleep=off -rtc clock=vm -serial "file:$out/clock.out" \
        -kernel "$out/clock/zephyr/zephyr.elf" &
    local qemu=$!
    for _ in $(seq 120); do
        sleep 0.5
        ! grep -qs '^PROJECT EXECUTION' "$out/clock.out" || break
    done
    kill "$qemu"
    cat "$out/clock.out"
    grep -q '^PROJECT EXECUTION SUCCESSFUL' "$out/clock.out"
}

build_tests() {
    build_for_host tests "$meter/tests/zephyr"
    # It makes the file of its flash where it runs. Its threads never run at once: one processor is ten times as fast.
    (cd "$out/tests" && rm -f flash.bin && timeout 300 taskset -c 0 zephyr/zephyr.exe)
}

find_zephyr
mkdir -p "$out"
case ${1:-} in
build)
    build_black_pill
    build_host
    echo "the meter for the virtual lab: build/firmware/host/zephyr/zephyr.exe"
    ;;
test)
    build_tests
    run_clock_test
    build_host
    ;;
*)
    echo "usage: $0 build|test" >&2
    exit 2
    ;;
esac
