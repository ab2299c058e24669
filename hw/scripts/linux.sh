# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# Linux with a driver for the accelerator, as one program for the simulator: firmware, device tree, kernel, benchmarks.

linux_package=linux-source-6.1
# Neither time, user nor machine gets into a kernel, so that runs, which are kept by its image, can be found again.
linux_make=(make -s ARCH=riscv CROSS_COMPILE=riscv64-linux-gnu- KBUILD_BUILD_TIMESTAMP=@0 KBUILD_BUILD_USER=farmem KBUILD_BUILD_HOST=farmem
    KBUILD_BUILD_VERSION=1)
linux_program=(riscv64-linux-gnu-gcc -march=rv64imac_zicsr_zifencei -mabi=lp64 -O2 -ffreestanding -nostdlib -static -fno-builtin
    -fno-tree-loop-distribute-patterns -fno-pic -no-pie -fno-stack-protector -Wall -Wextra -Werror -Wl,--build-id=none
    -Wl,--no-warn-rwx-segments,--no-relax)

# Debian's source, as it is: from the package that `make setup` installs, or, where it isn't, from the package's archive.
fetch_linux() {
    local installed=/usr/src/$linux_package.tar.xz
    if [ -e "$installed" ]; then
        cp "$installed" source.tar.xz
        dpkg-query -W -f '${Version}\n' $linux_package >version
        return
    fi
    apt-get -q download $linux_package
    dpkg-deb -f $linux_package*.deb Version >version
    dpkg-deb --fsys-tarfile $linux_package*.deb | tar xO ./usr/src/$linux_package.tar.xz >source.tar.xz
    rm $linux_package*.deb
}

# By its version: a newer source is another kernel.
linux_version() {
    if [ -e /usr/src/$linux_package.tar.xz ]; then
        dpkg-query -W -f '${Version}' $linux_package
    else
        apt-cache policy $linux_package 2>/dev/null | sed -n 's/^ *Candidate: //p'
    fi
}

linux_source() { cached linux-source $linux_package "$(linux_version)" -- fetch_linux; }

make_kernel() { # ARCHIVE
    tar xf "$1" --strip-components=1 --one-top-level=source
    cp "$hw/linux/pfa.c" source/mm/
    cp "$hw/linux/pfa.h" "$hw/sw/lib/pfa_registers.h" source/include/linux/
    patch -d source -p1 <"$hw/linux/kernel.patch"
    "${linux_program[@]}" "$hw"/linux/user/*.c -o init
    printf 'dir /dev 0755 0 0\nnod /dev/console 0600 0 0 c 5 1\nfile /init %s/init 0755 0 0\n' "$PWD" >initramfs.list
    mkdir build
    "${linux_make[@]}" -C source "O=$PWD/build" tinyconfig
    { cat "$hw/linux/config"; echo "CONFIG_INITRAMFS_SOURCE=\"$PWD/initramfs.list\""; } >>build/.config
    "${linux_make[@]}" -C build olddefconfig
    "${linux_make[@]}" -C build -j2 Image
    cp build/arch/riscv/boot/Image .
    rm -rf source build
}

kernel() {
    local source
    source=$(linux_source)
    cached kernel "$source/source.tar.xz" "$hw"/linux/{pfa.c,pfa.h,kernel.patch,config} "$hw/sw/lib/pfa_registers.h" "$hw"/linux/user/* "$hw"/sw/user/{gen,sort,touches}.h "${linux_make[*]}" -- make_kernel "$source/source.tar.xz"
}

firmware=(riscv64-unknown-elf-gcc -march=rv64imac_zicsr_zifencei -mabi=lp64 -mcmodel=medany -O2 -ffreestanding -fno-builtin
    -fno-tree-loop-distribute-patterns -Wall -Wextra -Werror -nostdlib -nostartfiles -Wl,--build-id=none,--no-warn-rwx-segments
    -T "$hw/linux/firmware/firmware.ld" "$hw/linux/firmware/firmware.S")

make_image() { # KERNEL OPTIONS AND SOURCES...
    ln -s "$1/Image" Image
    shift
    dtc -q -I dts -O dtb -o system.dtb "$hw/linux/system.dts"
    "${firmware[@]}" -I. "$@" -o program
}

image() { # NAME OPTIONS AND SOURCES...
    local kernel name=$1
    shift
    kernel=$(kernel)
    cached "$name" "$kernel/Image" "$hw/linux/system.dts" "$hw"/linux/firmware/* "$hw"/sw/lib/{pfa,pfa_registers,simulator}.h "$@" -- make_image "$kernel" "$@"
}

# For spike, with a model of the accelerator in the firmware. What it runs is part of it.
linux_model_image() { # RUN PAGES LIMIT ACCELERATED EVICTIONS [DAEMON PAUSE]
    image "linux-model-$1-$3-$4-$5-${6:-0}" -DSPIKE "-DRUN=$1" "-DPAGES=$2" "-DLIMIT=$3" "-DACCELERATED=$4" "-DEVICTIONS=$5" \
        "-DDAEMON=${6:-0}" "-DPAUSE=${7:-0}" \
        "$hw/linux/firmware/model.c"
}

spike_directory() { "$python" -c 'import importlib.util as u; print(u.find_spec("riscv").submodule_search_locations[0] + "/data")'; }

spike() { # ARGUMENTS...
    local directory
    directory=$(spike_directory)
    LD_LIBRARY_PATH=$directory/lib timeout "${patience:-900}" "$directory/bin/spike" --isa=rv64imac_zicntr -m0x80000000:0x10000000 \
        --pmpregions=0 "$@"
}

spike_linux() { spike "--dtb=$1/system.dtb" "$1/program"; } # IMAGE

make_linux_image() { # BOOTING_IMAGE
    spike_linux "$1"
    "${firmware[@]}" -DRESUME -I. -o program
    rm memory
}

# For the simulator: a machine that has booted on spike, and goes on where its first program asks what to do.
linux_image() {
    local booting
    booting=$(image linux-booting -DSPIKE -DSNAPSHOT -DRUN=0 -DPAGES=0 -DLIMIT=0 -DACCELERATED=0 -DEVICTIONS=0 -DDAEMON=0 -DPAUSE=0 \
        "$hw/linux/firmware/model.c")
    cached linux "$booting/program" -- make_linux_image "$booting"
}

# The same, but everything from reset on is left to the simulator: a hundred million cycles.
linux_cold_image() { image linux-cold; }
