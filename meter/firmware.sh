#!/usr/bin/env bash
# Builds the firmware with a Zephyr that is there already: `make firmware` and `make firmware-test`.
#
#   ZEPHYR_BASE              Zephyr's source; without it, a west workspace around this checkout
#   ZEPHYR_MODULES           where there is no west workspace: .../cmsis;.../hal_stm32
#   GNUARMEMB_TOOLCHAIN_PATH where bin/arm-none-eabi-gcc is; without it, Zephyr finds its SDK
set -euo pipefail

readonly meter=$(cd "$(dirname "$0")" && pwd)
readonly out=$(dirname "$meter")/build/firmware

readonly oldest=3.7 # the first with native_sim/native/64 for the host

# What is missing, a paragraph each.
missing=()

check_programs() {
    local program package absent=()
    # Debian's packages, where they are not named as their program is.
    for program in cmake ninja:ninja-build dtc:device-tree-compiler gcc python3; do
        package=${program#*:}
        command -v "${program%%:*}" >/dev/null || absent+=("$package")
    done
    if [ ${#absent[@]} -gt 0 ]; then
        missing+=("Programs that Zephyr's build needs. On Debian:
apt install ${absent[*]}")
    fi
}

# Zephyr's build runs Python scripts, with the python3 that it finds first.
check_python() {
    local module absent=()
    command -v python3 >/dev/null || return 0
    for module in west elftools:pyelftools yaml:PyYAML pykwalify packaging anytree; do
        python3 -c "import ${module%%:*}" 2>/dev/null || absent+=("${module#*:}")
    done
    if [ ${#absent[@]} -gt 0 ]; then
        missing+=("Python packages, in $(command -v python3), the python3 that is found first. In an environment for Zephyr:
python3 -m venv ~/zephyr-venv && . ~/zephyr-venv/bin/activate && pip install ${absent[*]}")
    fi
}

# NUMBER of a line "NUMBER = value" in Zephyr's VERSION
version_part() {
    sed -n "s/^$1 *= *//p" "$ZEPHYR_BASE/VERSION"
}

check_zephyr() {
    local version
    if [ -z "${ZEPHYR_BASE:-}" ] && command -v west >/dev/null; then
        ZEPHYR_BASE=$(cd "$meter" && west list -f '{abspath}' zephyr 2>/dev/null) || true
    fi
    if [ -z "${ZEPHYR_BASE:-}" ]; then
        missing+=("Zephyr itself, an operating system for microcontrollers that the firmware is built into. Zephyr's tool west,
one of the Python packages, brings the version that meter/west.yml names, and puts it beside this checkout (some 1.5 GB):
(cd $(dirname "$(dirname "$meter")") && west init -l --mf meter/west.yml $(basename "$(dirname "$meter")") && west update --narrow -o=--depth=1)
Where Zephyr is somewhere already: export ZEPHYR_BASE=/path/to/zephyr")
        return
    fi
    if [ ! -f "$ZEPHYR_BASE/share/zephyr-package/cmake/ZephyrConfig.cmake" ]; then
        missing+=("Zephyr's source: ZEPHYR_BASE is $ZEPHYR_BASE, which has no share/zephyr-package. It must name the folder
'zephyr' of a west workspace, or a checkout of github.com/zephyrproject-rtos/zephyr.")
        return
    fi
    version=$(version_part VERSION_MAJOR).$(version_part VERSION_MINOR)
    if [ "$(printf '%s\n' "$oldest" "$version" | sort -V | head -n 1)" != "$oldest" ]; then
        missing+=("A newer Zephyr: $ZEPHYR_BASE is $version, and the firmware needs $oldest or later.")
    fi
    export ZEPHYR_BASE
}

# In a workspace, west says where the modules are.
check_modules() {
    local name cmsis=cmsis absent=()
    [ -n "${ZEPHYR_MODULES:-}" ] || (cd "$ZEPHYR_BASE" && west topdir) >/dev/null 2>&1 || {
        if grep -qs 'repo-path: CMSIS_6' "$ZEPHYR_BASE/west.yml"; then
            cmsis=CMSIS_6
        fi
        missing+=("Zephyr's modules for the STM32, as there is no west workspace around $ZEPHYR_BASE: checkouts of
github.com/zephyrproject-rtos/$cmsis and .../hal_stm32 in the revisions that $ZEPHYR_BASE/west.yml names, then
export ZEPHYR_MODULES='/path/to/$cmsis;/path/to/hal_stm32'")
        return 0
    }
    while IFS= read -r name; do
        [ -z "$name" ] || [ -f "$name/zephyr/module.yml" ] || absent+=("$name")
    done < <(tr ';' '\n' <<<"${ZEPHYR_MODULES:-}")
    if [ ${#absent[@]} -gt 0 ]; then
        missing+=("Modules of Zephyr: ZEPHYR_MODULES names ${absent[*]}, where there is no zephyr/module.yml.")
    fi
}

# The SDK leaves a file behind by which CMake finds it.
has_arm_compiler() {
    [ -n "${GNUARMEMB_TOOLCHAIN_PATH:-}" ] || [ -n "${ZEPHYR_SDK_INSTALL_DIR:-}" ] ||
        [ -d "$HOME/.cmake/packages/Zephyr-sdk" ]
}

check_arm_compiler() {
    if ! has_arm_compiler; then
        missing+=("A compiler for the Black Pill's processor. Debian's:
apt install gcc-arm-none-eabi libnewlib-arm-none-eabi && export GNUARMEMB_TOOLCHAIN_PATH=/usr
Or Zephyr's own, in a workspace: west sdk install")
    elif [ -n "${GNUARMEMB_TOOLCHAIN_PATH:-}" ] && [ ! -x "$GNUARMEMB_TOOLCHAIN_PATH/bin/arm-none-eabi-gcc" ]; then
        missing+=("The compiler for the Black Pill's processor: GNUARMEMB_TOOLCHAIN_PATH is $GNUARMEMB_TOOLCHAIN_PATH, where
there is no bin/arm-none-eabi-gcc. With Debian's gcc-arm-none-eabi it is /usr.")
    fi
}

# check host|all: what the tests on the host need, or the Black Pill's build, too
check() {
    check_programs
    check_python
    check_zephyr
    [ "$1" = host ] || check_arm_compiler
    [ "$1" = host ] || [ -z "${ZEPHYR_BASE:-}" ] || check_modules
    if [ ${#missing[@]} -gt 0 ]; then
        echo "The firmware cannot be built yet. What is missing, in the order in which to get it; then say it again:" >&2
        printf '\n- %s\n' "${missing[@]}" >&2
        echo "
docs/firmware.md says more. The simulator has the same core and needs none of this: make bench builds it by itself." >&2
        exit 1
    fi
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

# build_for_host NAME SOURCE [CMAKE-OPTION...]
build_for_host() {
    local name=$1 source=$2
    shift 2
    ZEPHYR_TOOLCHAIN_VARIANT=host build "$name" "$source" native_sim/native/64 "$@"
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

# build_black_pill NAME [CMAKE-OPTION...]
build_black_pill() {
    local name=$1
    shift
    build_for_arm "$name" "$meter" blackpill_f411ce "$@"
    # The linker says it only when it links.
    if grep -q '^Memory region' "$out/$name.log"; then
        grep -E '^(Memory region| +(FLASH|S?RAM):)' "$out/$name.log" | tail -n 3 >"$out/$name.memory"
    fi
    cat "$out/$name.memory"
}

# run_tests NAME [CMAKE-OPTION...]
run_tests() {
    local name=$1
    shift
    build_for_host "$name" "$meter/tests/zephyr" "$@"
    # It makes the file of its flash where it runs. Its threads never run at once: one processor is ten times as fast.
    (cd "$out/$name" && rm -f flash.bin && timeout 300 taskset -c 0 zephyr/zephyr.exe)
}

mkdir -p "$out"
case ${1:-} in
build)
    check all
    build_black_pill blackpill_f411ce
    build_black_pill blackpill_f411ce_usb -DSNIPPET=usb-stream
    build_host
    echo "the meter for the virtual lab: build/firmware/host/zephyr/zephyr.exe"
    ;;
test)
    check host
    run_tests tests
    run_tests tests_ina228 -DSNIPPET=ina228
    build_host
    ;;
*)
    echo "usage: $0 build|test" >&2
    exit 2
    ;;
esac
