// Runs a program on the system, cycle by cycle.
//
//   simulate [options] PROGRAM
//
// With --runs FILE the program is stopped where it first reads an argument, and goes on from there once for each line of the
// file: `OUTPUT LATENCY CYCLES_PER_FLIT ARGUMENT...`. What was simulated before serves for all.
//
// Ends with the program's own exit status; 124 when the cycles ran out, 2 on a wrong use.

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "VPfaSystem.h"
#include "axi.h"
#include "blade.h"
#include "elf64.h"
#include "verilated.h"

// Part of each model's interface in this version of Verilator: the time, for messages.
static uint64_t g_cycle = 0;
double sc_time_stamp() { return static_cast<double>(g_cycle); }

namespace farmem {
namespace {

constexpr uint64_t kMemoryBase = 0x80000000;
constexpr uint64_t kMemoryBytes = 0x10000000;
constexpr uint64_t kDeviceBase = 0x60000000;
constexpr uint64_t kMemoryLatency = 80;
constexpr uint64_t kResetCycles = 10;
#ifndef HARTS
#error "HARTS tells how many harts the model has"
#endif

// Registers of the simulator itself, from kDeviceBase. hw/sw/simulator.h has the same list.
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
    kArgument = 0x80, // four of them
    kReset = 0x78, // pulls the reset line of the chip; memory and blade keep their contents
};

constexpr unsigned kArguments = 4;

struct Options {
    std::string program;
    std::string commits;
    std::string runs;
    std::vector<uint64_t> arguments;
    uint64_t max_cycles = 50'000'000;
    BladeSettings blade;
};

[[noreturn]] void usage(const char *problem) {
    std::fprintf(stderr,
                 "simulate: %s\n"
                 "usage: simulate [--max-cycles N] [--latency CYCLES] [--cycles-per-flit N] [--jitter CYCLES] [--seed N]\n"
                 "                [--commits FILE] [--argument N]... [--runs FILE] PROGRAM\n",
                 problem);
    std::exit(2);
}

Options parse(int argc, char **argv) {
    Options options;
    auto number = [&](int &i) {
        if (++i >= argc) usage("a number is missing");
        char *end = nullptr;
        uint64_t value = std::strtoull(argv[i], &end, 0);
        if (!*argv[i] || *end) usage("this is not a number");
        return value;
    };
    for (int i = 1; i < argc; i++) {
        std::string argument = argv[i];
        if (argument == "--max-cycles") options.max_cycles = number(i);
        else if (argument == "--latency") options.blade.latency_cycles = number(i);
        else if (argument == "--cycles-per-flit") options.blade.cycles_per_flit = number(i);
        else if (argument == "--jitter") options.blade.jitter_cycles = number(i);
        else if (argument == "--seed") options.blade.jitter_seed = number(i) * 2 + 1;
        else if (argument == "--commits" && i + 1 < argc) options.commits = argv[++i];
        else if (argument == "--runs" && i + 1 < argc) options.runs = argv[++i];
        else if (argument == "--argument") options.arguments.push_back(number(i));
        else if (argument[0] == '-') usage(("unknown option " + argument).c_str());
        else if (options.program.empty()) options.program = argument;
        else usage("one program at a time");
    }
    if (options.program.empty()) usage("which program?");
    if (options.arguments.size() > kArguments) usage("too many arguments");
    options.arguments.resize(kArguments);
    return options;
}

// A record of the commit trace; dv/cosim/compare.py reads them.
struct CommitRecord {
    uint64_t pc, source1, source2;
    uint32_t instruction;
    uint8_t privilege, hart;
    uint16_t zero;
};
static_assert(sizeof(CommitRecord) == 32, "records have a fixed size");

class Simulator {
  public:
    explicit Simulator(const Options &options)
        : options_(options), blade_(options.blade),
          memory_port_(kMemoryLatency, [this](uint64_t a) { return read_memory(a); },
                       [this](uint64_t a, uint64_t d, uint8_t s) { write_memory(a, d, s); }),
          device_port_(1, [this](uint64_t a) { return read_device(a - kDeviceBase); },
                       [this](uint64_t a, uint64_t d, uint8_t s) { write_device(a - kDeviceBase, d, s); }) {
        void *memory = mmap(nullptr, kMemoryBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) {
            std::perror("simulate: memory");
            std::exit(1);
        }
        memory_ = static_cast<uint8_t *>(memory);
        std::string problem = load_elf64(options.program, memory_, kMemoryBase, kMemoryBytes);
        if (!problem.empty()) usage((options.program + ": " + problem).c_str());
        if (!options.commits.empty()) {
            commits_ = std::fopen(options.commits.c_str(), "wb");
            if (!commits_) usage("can't write the commit trace");
        }
    }

    int run() {
        reset_left_ = kResetCycles;
        while (!ended_) {
            cycle();
            if (g_cycle >= last_cycle_) {
                std::fprintf(stderr, "simulate: no end after %llu cycles\n", static_cast<unsigned long long>(g_cycle));
                status_ = 124;
                break;
            }
        }
        std::fflush(stdout);
        if (commits_) std::fclose(commits_);
        if (run_chosen_) {
            // A run that was cut off leaves no output under its name.
            if (status_ == 0 && std::rename((output_ + ".partial").c_str(), output_.c_str()) != 0) status_ = 1;
            _exit(status_);
        }
        return status_;
    }

  private:
    void cycle() {
        top_.reset = reset_left_ > 0;
        drive();
        top_.clock = 0;
        top_.eval();
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
                blade_.reset_link();
            }
        } else {
            memory_port_.clock(memory, g_cycle);
            device_port_.clock(device, g_cycle);
            if (response) blade_.taken(g_cycle);
            if (request) blade_.receive(flit, g_cycle);
        }
        g_cycle++;
    }

    void drive() {
        const uint64_t now = g_cycle;
        top_.mem_axi4_0_aw_ready = memory_port_.aw_ready();
        top_.mem_axi4_0_w_ready = memory_port_.w_ready();
        top_.mem_axi4_0_b_valid = memory_port_.b_valid(now);
        top_.mem_axi4_0_b_bits_id = memory_port_.b_id();
        top_.mem_axi4_0_ar_ready = memory_port_.ar_ready();
        top_.mem_axi4_0_r_valid = memory_port_.r_valid(now);
        top_.mem_axi4_0_r_bits_id = memory_port_.r_id();
        top_.mem_axi4_0_r_bits_last = memory_port_.r_last();
        top_.mem_axi4_0_r_bits_data = memory_port_.r_data(now);
        top_.mmio_axi4_0_aw_ready = device_port_.aw_ready();
        top_.mmio_axi4_0_w_ready = device_port_.w_ready();
        top_.mmio_axi4_0_b_valid = device_port_.b_valid(now);
        top_.mmio_axi4_0_b_bits_id = device_port_.b_id();
        top_.mmio_axi4_0_ar_ready = device_port_.ar_ready();
        top_.mmio_axi4_0_r_valid = device_port_.r_valid(now);
        top_.mmio_axi4_0_r_bits_id = device_port_.r_id();
        top_.mmio_axi4_0_r_bits_last = device_port_.r_last();
        top_.mmio_axi4_0_r_bits_data = device_port_.r_data(now);
        top_.link_request_ready = 1;
        const Flit *offered = blade_.offer(now);
        top_.link_response_valid = offered != nullptr;
        top_.link_response_bits_head = offered && offered->head;
        top_.link_response_bits_data = offered ? offered->data : 0;
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
        case kCycle: return g_cycle;
        case kLatency: return blade_.settings.latency_cycles;
        case kBladeReads: return blade_.reads;
        case kBladeWrites: return blade_.writes;
        case kArgument ... kArgument + 8 * kArguments - 1:
            if (!options_.runs.empty() && !run_chosen_) choose_run();
            return arguments_[(offset - kArgument) / 8];
        case kPeekData: {
            const Page *page = blade_.find(peek_id_);
            return page ? (*page)[peek_word_ % kPageWords] : 0;
        }
        default: return 0;
        }
    }

    void write_device(uint64_t offset, uint64_t data, uint8_t) {
        switch (offset) {
        case kConsole: std::putchar(static_cast<int>(data & 0xff)); break;
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
        case kReset: reset_left_ = kResetCycles; break;
        default: break;
        }
    }

    // Goes on once for each line of the file, one after the other, each time as a process of its own. The process that was here before
    // ends when all have; it leaves without unwinding, because the others share what it would tidy up.
    void choose_run() {
        std::ifstream file(options_.runs);
        if (!file) usage("can't read the runs");
        std::fflush(nullptr);
        int failed = 0;
        for (std::string line; std::getline(file, line);) {
            std::istringstream words(line);
            std::string output;
            uint64_t latency, cycles_per_flit;
            if (!(words >> output >> latency >> cycles_per_flit)) usage("a run is OUTPUT LATENCY CYCLES_PER_FLIT ARGUMENT...");
            pid_t child = fork();
            if (child < 0) {
                std::perror("simulate: fork");
                _exit(1);
            }
            if (child == 0) {
                std::string partial = output + ".partial";
                if (!std::freopen(partial.c_str(), "w", stdout)) {
                    std::perror(partial.c_str());
                    _exit(1);
                }
                output_ = output;
                blade_.settings.latency_cycles = latency;
                blade_.settings.cycles_per_flit = cycles_per_flit;
                for (uint64_t &argument : arguments_)
                    if (!(words >> argument)) argument = 0;
                last_cycle_ = g_cycle + options_.max_cycles;
                run_chosen_ = true;
                return;
            }
            int status = 0;
            if (waitpid(child, &status, 0) != child || status != 0) {
                std::fprintf(stderr, "simulate: %s failed\n", output.c_str());
                failed = 1;
            }
        }
        _exit(failed);
    }

    const Options &options_;
    std::vector<uint64_t> arguments_ = options_.arguments;
    bool run_chosen_ = false;
    std::string output_;
    uint64_t last_cycle_ = options_.max_cycles;
    VPfaSystem top_;
    Blade blade_;
    uint8_t *memory_ = nullptr;
    AxiSlave memory_port_, device_port_;
    uint64_t peek_id_ = 0, peek_word_ = 0;
    uint64_t reset_left_ = 0;
    bool ended_ = false;
    int status_ = 0;
    std::FILE *commits_ = nullptr;
};

} // namespace
} // namespace farmem

int main(int argc, char **argv) {
    Verilated::commandArgs(argc, argv);
    farmem::Options options = farmem::parse(argc, argv);
    auto simulator = std::make_unique<farmem::Simulator>(options);
    return simulator->run();
}
