"""A source tree that is built as a kernel's is, by tuxmake and make, in a second.

It has of Kbuild what a bisection relies on: a configuration that is made from fragments, objects that are compiled
again if their source, a header or an option changed, what was read in `.NAME.cmd` and `auto.conf.cmd`, a rule of a
makefile's own, a device tree, a module.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from kernel_trees import commit, git

from fsjoule.host.setup.needs import needed_programs

MAKEFILE = r"""
S := $(CURDIR)
CC := $(CROSS_COMPILE)gcc
RELEASE := 6.1.0-toy
-include $(O)/include/config/auto.conf
include $(S)/Kbuild
objects := $(addprefix $(O)/,$(obj-y) kernel/table.o)
flags = $(KCFLAGS) -O1 -I$(S)/include -include $(O)/include/generated/autoconf.h

all: zImage modules dtbs
zImage: $(O)/arch/arm/boot/zImage
modules: $(O)/fs/ext4/ext4.ko

allnoconfig olddefconfig:
	@python3 $(S)/scripts/conf.py $@ $(S) $(O)

$(O)/include/generated/autoconf.h: $(O)/.config
	@python3 $(S)/scripts/conf.py syncconfig $(S) $(O)

$(O)/%.o: $(S)/%.c $(O)/include/generated/autoconf.h
	@mkdir -p $(@D)
	@echo "  CC      $*.o"
	@$(CC) $(flags) -Wp,-MMD,$@.d,-MT,$@,-MP -c -o $@ $<
	@python3 $(S)/scripts/fixdep.py $@ $<

# A rule of a makefile's own: nobody says that it reads the table.
$(O)/kernel/table.o: $(S)/kernel/table.txt $(O)/include/generated/autoconf.h
	@mkdir -p $(@D)
	@sed 's/^/int entry_/; s/$$/;/' $< | $(CC) $(KCFLAGS) -x c -c -o $@ -

$(O)/arch/arm/boot/zImage: $(objects)
	@mkdir -p $(@D)
	@cat $^ >$@

$(O)/fs/ext4/ext4.ko: $(O)/fs/ext4/inode.o
	@cp $< $@

dtbs: $(O)/arch/arm/boot/dts/imx6ul-14x14-evk.dtb
%.dtb: $(S)/arch/arm/boot/dts/board.dts
	@mkdir -p $(@D)
	@dtc -I dts -O dtb -o $@ $<

dtbs_install: dtbs
	@mkdir -p $(INSTALL_DTBS_PATH)
	@cp $(O)/arch/arm/boot/dts/*.dtb $(INSTALL_DTBS_PATH)

modules_install: modules
	@mkdir -p $(INSTALL_MOD_PATH)/lib/modules/$(RELEASE)/kernel
	@cp $(O)/fs/ext4/ext4.ko $(INSTALL_MOD_PATH)/lib/modules/$(RELEASE)/kernel
	@cp $(S)/scripts/modules.builtin $(INSTALL_MOD_PATH)/lib/modules/$(RELEASE)
	@echo kernel/ext4.ko >$(INSTALL_MOD_PATH)/lib/modules/$(RELEASE)/modules.order

-include $(shell find $(O) -name '*.o.d' 2>/dev/null)
"""

CONF = r'''
"""kconfig: symbols with `default y` or without; `source` of further files; what .config says of a symbol wins."""
import re, sys
from pathlib import Path
mode, source, build = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
files, defaults = [], {}
def read(name):
    files.append(name)
    for line in (source / name).read_text().splitlines():
        words = line.split()
        if words[:1] == ["config"]:
            defaults[last := "CONFIG_" + words[1]] = "n"
        elif words[:1] == ["default"]:
            defaults[last] = words[1]
        elif words[:1] == ["source"]:
            read(words[1].strip('"'))
        elif words and words[0] != "#":
            sys.exit(f"{name}:1: syntax error: {line}")
read("Kconfig")
said = {}
for line in (build / ".config").read_text().splitlines() if mode != "allnoconfig" else ():
    if match := re.fullmatch(r"(CONFIG_\w+)=(.*)", line):
        said[match[1]] = match[2]
    elif match := re.fullmatch(r"# (CONFIG_\w+) is not set", line):
        said[match[1]] = "n"
values = {name: said.get(name, "n" if mode == "allnoconfig" else default) for name, default in defaults.items()}
text = "".join(f"{n}={v}\n" if v != "n" else f"# {n} is not set\n" for n, v in values.items())
if mode == "syncconfig":
    for folder in ("config", "generated"):
        (build / "include" / folder).mkdir(parents=True, exist_ok=True)
    (build / "include/config/auto.conf").write_text(text)
    listed = " \\\n\t".join(files)
    (build / "include/config/auto.conf.cmd").write_text(f"deps_config := \\\n\t{listed}\n")
    header = "".join(f"#define {n} 1\n" for n, v in values.items() if v == "y")
    file = build / "include/generated/autoconf.h"
    if not file.exists() or file.read_text() != header:
        file.write_text(header)
else:
    (build / ".config").write_text(text)
'''

FIXDEP = r"""
import sys
from pathlib import Path
target, source = Path(sys.argv[1]), sys.argv[2]
read = Path(f"{target}.d").read_text().replace("\\\n", " ").split(":", 1)[1].split("\n")[0].split()
made = f"cmd_{target.name} := gcc -c -o {target} {source}\n\nsource_{target.name} := {source}\n\n"
made += f"deps_{target.name} := \\\n" + "".join(f"  {each} \\\n" for each in read[1:])
target.with_name(f".{target.name}.cmd").write_text(made)
"""

MERGE = """#!/bin/sh
# merge_config.sh -m -O BUILD CONFIG FRAGMENT...: later lines win
shift 2; build=$1; shift
cat "$@" >"$build/.merged"; mv "$build/.merged" "$build/.config"
"""

DTS = """/dts-v1/;
/ { aliases { serial1 = "/serial"; }; timer { status = "disabled"; }; serial { dmas = <1>; dma-names = "rx"; }; };
"""

FILES = {
    "Makefile": MAKEFILE,
    "Kconfig": 'config MODULES\nconfig EXT4_FS\nconfig BTRFS_FS\nsource "arch/arm/Kconfig"\n',
    "arch/arm/Kconfig": "config ARM\n default y\n",
    "arch/arm/Makefile": "# of the architecture\n",
    "arch/arm/boot/dts/board.dts": DTS,
    "arch/x86/Kconfig": "config X86\n",
    "Kbuild": "obj-y := init/main.o\nobj-$(CONFIG_EXT4_FS) += fs/ext4/file.o\nobj-$(CONFIG_BTRFS_FS) += fs/btrfs/a.o\n",
    "init/main.c": "#include <linux/fs.h>\nint main_of_it(void) { return FS; }\n",
    "fs/ext4/file.c": '#include <linux/fs.h>\n#include "ext4.h"\nint write_iter(int x) { return x + FS + EXT4; }\n',
    "fs/ext4/inode.c": '#include "ext4.h"\nint inode(int x) { return x + EXT4; }\n',
    "fs/ext4/ext4.h": "#define EXT4 4\n",
    "fs/btrfs/a.c": "int a;\n",
    "fs/xfs/xfs.c": "#include <linux/nothing.h>\n",
    "include/linux/fs.h": "#define FS 1\n",
    "kernel/table.txt": "one\ntwo\n",
    "scripts/conf.py": CONF,
    "scripts/fixdep.py": FIXDEP,
    "scripts/kconfig/merge_config.sh": MERGE,
    "scripts/modules.builtin": "kernel/drivers/mmc/host/sdhci-esdhc-imx.ko\nkernel/drivers/mmc/core/mmc_block.ko\n",
    "Documentation/index.rst": "A kernel\n",
}


def new_kernel(tree: Path) -> Path:
    """A repository with the toy as its only commit, tagged v6.1."""
    for name, text in FILES.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    (tree / "scripts" / "kconfig" / "merge_config.sh").chmod(0o755)
    git(tree, "init", "--quiet", "--initial-branch=main")
    git(tree, "add", "--all")
    git(tree, "commit", "--quiet", "--message=a kernel")
    git(tree, "tag", "v6.1")
    return tree


def changed(tree: Path, name: str, old: str, new: str) -> str:
    """The hash of a commit in which a file has another text in one place."""
    text = (tree / name).read_text()
    assert old in text
    return commit(tree, name, text.replace(old, new, 1))


def tools_for_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this machine's compiler be the board's, and be without what only a real kernel needs."""
    folder.mkdir()
    for name in needed_programs("kernels"):
        if name not in ("make", "xz", "cc", "gcc", "git", "perl"):
            (folder / name).symlink_to("/usr/bin/gcc" if name.endswith("gcc") else "/bin/true")
    monkeypatch.setenv("PATH", str(folder), prepend=":")
