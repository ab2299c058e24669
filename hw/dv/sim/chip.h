// SPDX-License-Identifier: MIT OR Apache-2.0
// One chip with its memory, its simulator's registers, and its end of the link.
#pragma once

#include <sys/mman.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <string>

#include "VPfaSystem.h"
#include "VPfaSystem___024root.h"
#include "axi.h"
#include "blade.h"
#include "switch.h"

namespace farmem {

constexpr uint64_t kMemoryBase = 0x80000000;
constexpr uint64_t kMemoryBytes = 0x10000000;
constexpr uint64_t kDeviceBase = 0x60000000;
constexpr uint64_t kMemoryLatency = 80;
constexpr uint64_t kResetCycles = 10;
#ifndef HARTS
#error "HARTS tells how many harts the model has"
#endif

// Registers of the simulator itself, from kDeviceBase. hw/sw/lib/simulator.h has the same list.
enum Device : uint64_t {
    kConsole = 0x00,
    kExit = 0x08,
    kCycle = 0x10,
    kLatency = 0x18,
    kCyclesPerFlit = 0x20,
    kFail = 0x28,
    kLose = 0x30,
    kCutShort = 0x38,
    kHold = 0x40,
    kHoldCycles = 0x48,
    kBladeReads = 0x50,
    kBladeWrites = 0x58,
    kPeekId = 0x60,
    kPeekWord = 0x68, // word number; then read kPeekData
    kPeekData = 0x70,
    kReset = 0x78, // pulls the reset line of the chip; memory and blade keep their contents
    kArgument = 0x80, // eight of them
    kLie = 0xc8,
    kEarly = 0xd0,
    kRefuse = 0xd8,
    kBadPage = 0xc0, // address of a page of memory: whoever accesses it gets an error of the bus; 0: none
};

constexpr unsigned kArguments = 8;
using Arguments = std::array<uint64_t, kArguments>;

// A record of the commit trace; dv/cosim/compare.py reads them.
struct CommitRecord {
    uint64_t pc, source1, source2;
    uint32_t instruction;
    uint8_t privilege, hart;
    uint16_t zero;
};
static_assert(sizeof(CommitRecord) == 32, "records have a fixed size");

// Makes the model believe that it has seen the clock low, without evaluating it. Another Verilator may call it otherwise: then nothing is
// saved, and false returned.
template <class Root> auto clock_was_low(Root &root, int) -> decltype(root.__Vtrigrprev__TOP__clock = 0, bool()) {
    root.__Vtrigrprev__TOP__clock = 0;
    return true;
}
template <class Root> bool clock_was_low(Root &, long) { return false; }

class Chip {
  public:
    // `before_argument` is called before the program reads an argument, and may change them.
    Chip(unsigned number, Blade &blade, Switch &link, const Arguments &arguments, std::FILE *commits, std::function<void()> before_argument)
        : arguments(arguments), number_(number), blade_(blade), link_(link), commits_(commits),
          before_argument_(std::move(before_argument)),
          memory_port_(kMemoryLatency, [this](uint64_t a) { return read_memory(a); },
                       [this](uint64_t a, uint64_t d, uint8_t s) { write_memory(a, d, s); },
                       [this](uint64_t a) { return bad_page_ && a >> 12 == bad_page_ >> 12; }),
          device_port_(1, [this](uint64_t a) { return read_device(a - kDeviceBase); },
                       [this](uint64_t a, uint64_t d, uint8_t) { write_device(a - kDeviceBase, d); },
                       [](uint64_t) { return false; }) {
        void *memory = mmap(nullptr, kMemoryBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) {
            std::perror("simulate: memory");
            std::exit(1);
        }
        memory_ = static_cast<uint8_t *>(memory);
    }
    Chip(const Chip &) = delete;
    Chip &operator=(const Chip &) = delete;

    Arguments arguments;
    // What begins each line that the program prints.
    std::string label;

    uint8_t *memory() { return memory_; }
    bool ended() const { return ended_; }
    int status() const { return status_; }

    void cycle(uint64_t now) {
        now_ = now;
        drive(now);
        top_.clock = 0;
        // What follows from inputs is worked out only when one of them has changed: in most cycles neither memory nor link says anything new.
        if (changed_ || !clock_was_low(*top_.rootp, 0)) top_.eval();
        changed_ = false;
        AxiMaster memory = sample_memory();
        AxiMaster device = sample_device();
        bool request = top_.link_request_valid && top_.link_request_ready;
        Flit flit{static_cast<bool>(top_.link_request_bits_head), top_.link_request_bits_data};
        bool response = top_.link_response_valid && top_.link_response_ready;
        if (commits_ && !top_.reset) write_commits();
        top_.clock = 1;
        top_.eval();
        if (reset_left_) {
            if (--reset_left_ == 0) {
                memory_port_.reset();
                device_port_.reset();
                link_.reset(number_);
            }
        } else {
            memory_port_.clock(memory, now);
            device_port_.clock(device, now);
            if (response) link_.taken(now);
            if (request) link_.receive(number_, flit, now);
        }
    }

  private:
    template <class Signal, class Value> void set(Signal &input, Value value) {
        Signal next = static_cast<Signal>(value);
        changed_ |= input != next;
        input = next;
    }

    void drive(uint64_t now) {
        set(top_.reset, reset_left_ > 0);
        set(top_.mem_axi4_0_aw_ready, memory_port_.aw_ready());
        set(top_.mem_axi4_0_w_ready, memory_port_.w_ready());
        set(top_.mem_axi4_0_b_valid, memory_port_.b_valid(now));
        set(top_.mem_axi4_0_b_bits_resp, memory_port_.b_response());
        set(top_.mem_axi4_0_b_bits_id, memory_port_.b_id());
        set(top_.mem_axi4_0_ar_ready, memory_port_.ar_ready());
        set(top_.mem_axi4_0_r_valid, memory_port_.r_valid(now));
        set(top_.mem_axi4_0_r_bits_resp, memory_port_.r_response());
        set(top_.mem_axi4_0_r_bits_id, memory_port_.r_id());
        set(top_.mem_axi4_0_r_bits_last, memory_port_.r_last());
        set(top_.mem_axi4_0_r_bits_data, memory_port_.r_data(now));
        set(top_.mmio_axi4_0_aw_ready, device_port_.aw_ready());
        set(top_.mmio_axi4_0_w_ready, device_port_.w_ready());
        set(top_.mmio_axi4_0_b_valid, device_port_.b_valid(now));
        set(top_.mmio_axi4_0_b_bits_resp, device_port_.b_response());
        set(top_.mmio_axi4_0_b_bits_id, device_port_.b_id());
        set(top_.mmio_axi4_0_ar_ready, device_port_.ar_ready());
        set(top_.mmio_axi4_0_r_valid, device_port_.r_valid(now));
        set(top_.mmio_axi4_0_r_bits_resp, device_port_.r_response());
        set(top_.mmio_axi4_0_r_bits_id, device_port_.r_id());
        set(top_.mmio_axi4_0_r_bits_last, device_port_.r_last());
        set(top_.mmio_axi4_0_r_bits_data, device_port_.r_data(now));
        set(top_.link_request_ready, link_.accepts(number_));
        std::optional<Flit> offered = link_.offer(number_, now);
        set(top_.link_response_valid, offered.has_value());
        set(top_.link_response_bits_head, offered && offered->head);
        set(top_.link_response_bits_data, offered ? offered->data : 0);
    }

    AxiMaster sample_memory() const {
        return {static_cast<bool>(top_.mem_axi4_0_aw_valid), static_cast<bool>(top_.mem_axi4_0_w_valid),
                static_cast<bool>(top_.mem_axi4_0_b_ready), static_cast<bool>(top_.mem_axi4_0_ar_valid),
                static_cast<bool>(top_.mem_axi4_0_r_ready), top_.mem_axi4_0_aw_bits_id, top_.mem_axi4_0_aw_bits_addr,
                top_.mem_axi4_0_aw_bits_len, top_.mem_axi4_0_w_bits_data, top_.mem_axi4_0_w_bits_strb,
                static_cast<bool>(top_.mem_axi4_0_w_bits_last), top_.mem_axi4_0_ar_bits_id,
                top_.mem_axi4_0_ar_bits_addr, top_.mem_axi4_0_ar_bits_len};
    }

    AxiMaster sample_device() const {
        return {static_cast<bool>(top_.mmio_axi4_0_aw_valid), static_cast<bool>(top_.mmio_axi4_0_w_valid),
                static_cast<bool>(top_.mmio_axi4_0_b_ready), static_cast<bool>(top_.mmio_axi4_0_ar_valid),
                static_cast<bool>(top_.mmio_axi4_0_r_ready), top_.mmio_axi4_0_aw_bits_id,
                top_.mmio_axi4_0_aw_bits_addr, top_.mmio_axi4_0_aw_bits_len, top_.mmio_axi4_0_w_bits_data,
                top_.mmio_axi4_0_w_bits_strb, static_cast<bool>(top_.mmio_axi4_0_w_bits_last),
                top_.mmio_axi4_0_ar_bits_id, top_.mmio_axi4_0_ar_bits_addr, top_.mmio_axi4_0_ar_bits_len};
    }

    void write_commits() {
        auto write = [this](bool valid, uint64_t pc, uint32_t instruction, uint8_t privilege, uint64_t s1, uint64_t s2,
                            uint8_t hart) {
            if (!valid) return;
            CommitRecord record{pc, s1, s2, instruction, privilege, hart, 0};
            std::fwrite(&record, sizeof record, 1, commits_);
        };
        write(top_.commit_0_valid, top_.commit_0_pc, top_.commit_0_instruction, top_.commit_0_privilege,
              top_.commit_0_source1, top_.commit_0_source2, 0);
#if HARTS > 1
        write(top_.commit_1_valid, top_.commit_1_pc, top_.commit_1_instruction, top_.commit_1_privilege,
              top_.commit_1_source1, top_.commit_1_source2, 1);
#endif
    }

    uint64_t read_memory(uint64_t address) const {
        uint64_t data = 0;
        if (in_memory(address)) std::memcpy(&data, memory_ + (address - kMemoryBase), 8);
        return data;
    }

    void write_memory(uint64_t address, uint64_t data, uint8_t strobe) {
        if (!in_memory(address)) return;
        uint8_t *to = memory_ + (address - kMemoryBase);
        for (int i = 0; i < 8; i++)
            if (strobe >> i & 1) to[i] = static_cast<uint8_t>(data >> 8 * i);
    }

    static bool in_memory(uint64_t address) { return address >= kMemoryBase && address <= kMemoryBase + kMemoryBytes - 8; }

    uint64_t read_device(uint64_t offset) {
        switch (offset) {
        case kCycle: return now_;
        case kLatency: return blade_.settings.latency_cycles;
        case kBladeReads: return blade_.reads;
        case kBladeWrites: return blade_.writes;
        case kArgument ... kArgument + 8 * kArguments - 1:
            before_argument_();
            return arguments[(offset - kArgument) / 8];
        case kPeekData: {
            const Page *page = link_.find(number_, peek_id_);
            return page ? (*page)[peek_word_ % kPageWords] : 0;
        }
        default: return 0;
        }
    }

    void write_device(uint64_t offset, uint64_t data) {
        switch (offset) {
        case kConsole: put_character(static_cast<char>(data)); break;
        case kExit:
            ended_ = true;
            status_ = static_cast<int>(data & 0x7f);
            break;
        case kLatency: blade_.settings.latency_cycles = data; break;
        case kCyclesPerFlit: blade_.settings.cycles_per_flit = data; break;
        case kFail: blade_.faults.fail = data; break;
        case kLose: blade_.faults.lose = data; break;
        case kCutShort: blade_.faults.cut_short = data; break;
        case kHold: blade_.faults.hold = data; break;
        case kHoldCycles: blade_.faults.hold_cycles = data; break;
        case kPeekId: peek_id_ = data; break;
        case kPeekWord: peek_word_ = data; break;
        case kLie: blade_.faults.lie = data; break;
        case kEarly: blade_.faults.early = data; break;
        case kRefuse: blade_.faults.refuse = data; break;
        case kBadPage: bad_page_ = data; break;
        case kReset: reset_left_ = kResetCycles; break;
        default: break;
        }
    }

    // Lines of several chips do not mix.
    void put_character(char character) {
        line_ += character;
        if (character != '\n') return;
        std::fputs((label + line_).c_str(), stdout);
        line_.clear();
    }

    const unsigned number_;
    Blade &blade_;
    Switch &link_;
    std::FILE *const commits_;
    const std::function<void()> before_argument_;
    VPfaSystem top_;
    // One of its inputs, since it was last evaluated; true before the first time.
    bool changed_ = true;
    uint8_t *memory_ = nullptr;
    AxiSlave memory_port_, device_port_;
    std::string line_;
    uint64_t now_ = 0;
    uint64_t peek_id_ = 0, peek_word_ = 0;
    uint64_t bad_page_ = 0;
    uint64_t reset_left_ = kResetCycles;
    bool ended_ = false;
    int status_ = 0;
};

} // namespace farmem
