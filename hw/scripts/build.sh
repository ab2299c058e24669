# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# How each artefact is made from its sources. Each function prints the directory of its result.

java_options=(-XX:+UseSerialGC -Xss16m -Xmx3g)
units=(FrameQueue NewQueue EvictQueue WalkerHook FetchPath RemoteMemoryClient RemoteMemoryClientTags9 Registers AcceleratorCore
    FrameQueueProof NewQueueProof FetchProof FetchEnds PageWriterProof PageReaderProof ClientProof)
# The system of tests and of figures without a kernel: two harts, and queues that are soon full.
test_system=(2 8 8 4)
# That of Linux: one hart, queues as deep as the paper's.
linux_system=(1 64 64 64)

make_jars() { mvn -q -B -f "$hw/pom.xml" dependency:copy-dependencies "-DoutputDirectory=$PWD"; }

jars() { cached jars "$hw/pom.xml" -- make_jars; }

classpath() { find "$1" -name '*.jar' | sort | paste -sd:; }

classes() {
    local jars
    jars=$(jars)
    # Without the class path in the arguments: it depends on where the repository lies.
    CLASSPATH=$(classpath "$jars") cached classes "$hw/pom.xml" "$hw"/rtl/*.scala -- \
        java "${java_options[@]}" -XX:TieredStopAtLevel=1 scala.tools.nsc.Main -usejavacp -Xsource:2.11 -d . "$hw"/rtl/*.scala
}

generate() { # NAME ARGUMENTS...: Verilog
    local name=$1 classes jars
    shift
    classes=$(classes)
    jars=$(jars)
    CLASSPATH=$classes:$(classpath "$jars") cached "$name" "$classes" "$@" -- java "${java_options[@]}" farmem.pfa.Generate . "$@"
}

unit_verilog() { generate units units "${units[@]}"; }

# Queues as deep as those of the evaluation.
deep_units=(FrameQueue NewQueue EvictQueue)
deep_verilog() { generate deep deep "${deep_units[@]}"; }

# With what must be reachable: for proofs only.
proofs=(FrameQueueProof NewQueueProof EvictQueue WalkerHook FetchEnds ClientProof)
cover_verilog() { generate covers covers "${proofs[@]}"; }

system_verilog() { generate "system-${1}harts" system "$@"; }

# The accelerator without a core; doc/interface.md.
release_verilog() { generate release release "$@"; } # HARTS FREE NEW EVICT

# Our own modules; the rest of the system is Rocket's.
lint=(verilator --lint-only -Wall --no-timing +define+STOP_COND=1 +define+PRINTF_COND=1 "$hw/dv/lint/waivers.vlt")

verilator_options=(-O3 --x-assign fast --x-initial fast --no-timing +define+STOP_COND=1 +define+PRINTF_COND=1 +define+RANDOMIZE_REG_INIT)

make_unit_test() { # UNIT TEST.cc [OPTION]; of the unit's Verilog in VERILOG
    verilator --cc --exe --build -j 2 "$VERILOG/$1.v" "$2" --top-module "$1" --Mdir model -Wno-lint -Wno-style \
        "${verilator_options[@]}" -CFLAGS "-O1 -std=c++17 -Wall -Wextra -I$hw/dv/unit ${3:-}" -o test
}

unit_test() { # UNIT TEST [OPTION [DIRECTORY OF VERILOG]]
    local verilog
    verilog=${4:-$(unit_verilog)}
    # By the unit's content: what was changed in another costs no new test.
    VERILOG=$verilog cached "unit-$2${3:-}" "$verilog/$1.v" "$hw/dv/unit/$2.cc" "$hw"/dv/unit/{,client_}bench.h "$hw"/dv/sim/{blade,packet}.h "$hw/sw/lib/pfa_registers.h" "${verilator_options[@]}" -- \
        make_unit_test "$1" "$hw/dv/unit/$2.cc" "${3:-}"
}

make_model() {
    # Rocket prints a line in every cycle; the commit ports say the same.
    sed '/\$fwrite(32.h80000002,"C%d: %d \[%d\] pc=/d' "$VERILOG/PfaSystem.v" >PfaSystem.v
    cp "$VERILOG/plusarg_reader.v" .
    verilator --cc PfaSystem.v plusarg_reader.v --top-module PfaSystem --Mdir model -Wno-lint -Wno-style "${verilator_options[@]}" \
        --output-split 15000
    # What follows from inputs is worked out at the beginning of each evaluation. The simulator evaluates twice a cycle, and before the rising
    # edge nothing but the clock has changed: that is a tenth of all work. (Another Verilator may write it otherwise: then it is only slower.)
    sed -i 's/\(__VicoTriggered.at(0U) = \)(0U == vlSelf->__VicoIterCount)/\1((0U == vlSelf->__VicoIterCount) \& !vlSelf->clock)/' model/*.cpp
    make -s -j2 -C model -f VPfaSystem.mk OPT_FAST=-O2 VPfaSystem__ALL.a
}

model() { # HARTS FREE NEW EVICT
    local verilog
    verilog=$(system_verilog "$@")
    # By the system's content: what was changed beside it costs no new model.
    VERILOG=$verilog cached "model-${1}harts" "$verilog/PfaSystem.v" "${verilator_options[@]}" "$(declare -f make_model)" -- make_model
}

# A unit's test with branches and bits counted; dv/coverage/coverage.py adds them up.
coverage_options=(--coverage-line --coverage-toggle)

make_covered_unit() { # UNIT TEST.cc
    local verilator_options=("${verilator_options[@]}" "${coverage_options[@]}")
    make_unit_test "$@"
    timeout "${patience:-900}" ./model/test
}

# Has run: its counts are in coverage.dat.
covered_unit() { # UNIT TEST
    local verilog
    verilog=$(unit_verilog)
    VERILOG=$verilog cached "covered-$2" "$verilog/$1.v" "$hw/dv/unit/$2.cc" "$hw"/dv/unit/{,client_}bench.h "$hw"/dv/sim/{blade,packet}.h \
        "$hw/sw/lib/pfa_registers.h" "${verilator_options[@]}" "${coverage_options[@]}" -- \
        make_covered_unit "$1" "$hw/dv/unit/$2.cc"
}

make_simulator() { # MODEL HARTS OPTIONS...
    local include
    include=$(verilator --getenv VERILATOR_ROOT)/include
    g++ -O2 -std=c++17 -Wall -Wextra "-DHARTS=$2" "${@:3}" "-I$hw/dv/sim" "-I$1/model" "-isystem$include" "-isystem$include/vltstd" \
        "$hw/dv/sim/main.cc" "$include/verilated.cpp" "$include/verilated_threads.cpp" "$1/model/VPfaSystem__ALL.a" -lpthread -o simulate
}

simulator() { # HARTS FREE NEW EVICT
    local model
    model=$(model "$@")
    cached "simulator-${1}harts" "$model" "$hw"/dv/sim/* "$1" -- make_simulator "$model" "$1"
}

# The same, compiled anew by what a run does: a fifth faster, for simulations of many minutes.
tuned_simulator() { # HARTS PROGRAM OPTIONS OF THE RUN...
    local harts=$1 model
    shift
    model=$(model "${linux_system[@]}")
    cached "simulator-tuned" "$model" "$hw"/dv/sim/* "$harts" "$(declare -f make_tuned_simulator)" -- make_tuned_simulator "$model" "$harts" "$@"
}

make_tuned_simulator() { # MODEL HARTS PROGRAM OPTIONS...
    local compile=(make -s -j2 -C model -f VPfaSystem.mk OPT_SLOW=-O0 VPfaSystem__ALL.a)
    mkdir model
    cp "$1"/model/*.{cpp,h,mk} model
    "${compile[@]}" OPT_FAST="-O2 -fprofile-generate"
    make_simulator . "$2" -fprofile-generate
    # It ends for want of cycles.
    ./simulate "${@:4}" "$3" || [ $? = 124 ]
    rm model/*.{o,a}
    "${compile[@]}" OPT_FAST="-O2 -fprofile-use -Wno-missing-profile"
    make_simulator . "$2" -fprofile-use -Wno-missing-profile
    rm -r model
}

compiler=(riscv64-unknown-elf-gcc -march=rv64imac_zicsr_zifencei -mabi=lp64 -mcmodel=medany -O2 -ffreestanding -nostdlib
    -nostartfiles -Wall -Wextra -Werror -fno-builtin -fno-tree-loop-distribute-patterns -Wl,--no-warn-rwx-segments
    -Wl,--build-id=none)

program() { # NAME SOURCE...: options may stand among the sources
    local name=$1
    shift
    cached "program-$name" "$hw"/sw/lib/* "$hw"/sw/user/*.h "$@" "${compiler[*]}" -- \
        "${compiler[@]}" "-I$hw/sw/lib" -T "$hw/sw/lib/program.ld" "$hw"/sw/lib/entry.S "$hw"/sw/lib/*.c "$@" -lgcc -o program
}
