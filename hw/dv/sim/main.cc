// SPDX-License-Identifier: MIT OR Apache-2.0
// Runs a program on the system, cycle by cycle.
//
//   simulate [options] PROGRAM
//
// With --clients N there are N chips, each running the program, and one blade.
//
// With --runs FILE the program is stopped where it first reads an argument, and goes on from there once for each line of the
// file: `OUTPUT LATENCY CYCLES_PER_FLIT ARGUMENT...`. What was simulated before serves for all.
//
// Ends with the program's own exit status; 124 when the cycles ran out, 2 on a wrong use.

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "blade.h"
#include "chip.h"
#include "elf64.h"
#include "switch.h"
#include "verilated.h"

// Part of each model's interface in this version of Verilator: the time, for messages.
static uint64_t g_cycle = 0;
double sc_time_stamp() { return static_cast<double>(g_cycle); }

namespace farmem {
namespace {

constexpr unsigned kMostClients = 16;
// What is returned when the cycles ran out.
constexpr int kNoEnd = 124;

struct Options {
    std::string program;
    std::string commits;
    std::string runs;
    Arguments arguments{};
    uint64_t max_cycles = 50'000'000;
    unsigned clients = 1;
    unsigned jobs = 1;
    BladeSettings blade;
};

[[noreturn]] void usage(const char *problem) {
    std::fprintf(stderr,
                 "simulate: %s\n"
                 "usage: simulate [--max-cycles N] [--latency CYCLES] [--cycles-per-flit N] [--jitter CYCLES] [--seed N]\n"
                 "                [--commits FILE] [--argument N]... [--clients N] [--runs FILE [--jobs N]] PROGRAM\n",
                 problem);
    std::exit(2);
}

Options parse(int argc, char **argv) {
    Options options;
    unsigned given = 0;
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
        else if (argument == "--clients") options.clients = static_cast<unsigned>(number(i));
        else if (argument == "--jobs") options.jobs = static_cast<unsigned>(number(i));
        else if (argument == "--argument") {
            uint64_t value = number(i);
            if (given == kArguments) usage("too many arguments");
            options.arguments[given++] = value;
        }
        else if (argument[0] == '-') usage(("unknown option " + argument).c_str());
        else if (options.program.empty()) options.program = argument;
        else usage("one program at a time");
    }
    if (options.program.empty()) usage("which program?");
    if (options.clients < 1 || options.clients > kMostClients || options.jobs < 1) usage("clients are 1 to 16, jobs at least 1");
    if (options.clients > 1 && !options.runs.empty()) usage("runs are for one client");
    return options;
}


class Simulator {
  public:
    explicit Simulator(const Options &options) : options_(options), blade_(options.blade), link_(blade_, options.clients) {
        if (!options.commits.empty()) {
            commits_ = std::fopen(options.commits.c_str(), "wb");
            if (!commits_) usage("can't write the commit trace");
        }
        for (unsigned number = 0; number < options.clients; number++) {
            chips_.push_back(std::make_unique<Chip>(number, blade_, link_, options.arguments, number == 0 ? commits_ : nullptr,
                                                    [this] { before_argument(); }));
            if (options.clients > 1) chips_.back()->label = std::to_string(number) + ": ";
            std::string problem = load_elf64(options.program, chips_.back()->memory(), kMemoryBase, kMemoryBytes);
            if (!problem.empty()) usage((options.program + ": " + problem).c_str());
        }
    }

    int run() {
        bool running = true;
        for (; running && g_cycle < last_cycle_; g_cycle++) {
            running = false;
            link_.clock();
            for (auto &chip : chips_) {
                chip->cycle(g_cycle);
                running |= !chip->ended();
            }
        }
        int status = 0;
        for (auto &chip : chips_) status = std::max(status, chip->status());
        if (running) {
            std::fprintf(stderr, "simulate: no end after %llu cycles\n", static_cast<unsigned long long>(g_cycle));
            status = kNoEnd;
        }
        std::fflush(stdout);
        if (commits_) std::fclose(commits_);
        if (run_chosen_) {
            report_cost();
            // A run that was cut off leaves no output under its name.
            if (status == 0 && std::rename((output_ + ".partial").c_str(), output_.c_str()) != 0) status = 1;
            _exit(status);
        }
        return status;
    }

  private:
    void before_argument() {
        if (!options_.runs.empty() && !run_chosen_) choose_run();
    }

    // Goes on once for each line of the file, each time as a process of its own, so many at once as was said. The process that was here
    // before ends when all have; it leaves without unwinding, because the others share what it would tidy up.
    void choose_run() {
        std::ifstream file(options_.runs);
        if (!file) usage("can't read the runs");
        std::fflush(nullptr);
        unsigned running = 0;
        int failed = 0;
        auto await = [&] {
            int status = 0;
            if (wait(&status) < 0 || status != 0) failed = 1;
            running--;
        };
        for (std::string line; std::getline(file, line);) {
            std::istringstream words(line);
            std::string output;
            uint64_t latency, cycles_per_flit;
            if (!(words >> output >> latency >> cycles_per_flit)) usage("a run is OUTPUT LATENCY CYCLES_PER_FLIT ARGUMENT...");
            if (running == options_.jobs) await();
            pid_t child = fork();
            if (child < 0) {
                std::perror("simulate: fork");
                _exit(1);
            }
            if (child == 0) {
                begin_run(output, latency, cycles_per_flit, words);
                return;
            }
            running++;
        }
        while (running) await();
        _exit(failed);
    }

    void begin_run(const std::string &output, uint64_t latency, uint64_t cycles_per_flit, std::istream &arguments) {
        std::string partial = output + ".partial";
        if (!std::freopen(partial.c_str(), "w", stdout)) {
            std::perror(partial.c_str());
            _exit(1);
        }
        output_ = output;
        blade_.settings.latency_cycles = latency;
        blade_.settings.cycles_per_flit = cycles_per_flit;
        for (uint64_t &argument : chips_.front()->arguments)
            if (!(arguments >> argument)) argument = 0;
        first_cycle_ = g_cycle;
        last_cycle_ = g_cycle + options_.max_cycles;
        run_chosen_ = true;
    }

    // What a run cost is no part of its output, which is the same each time.
    void report_cost() const {
        rusage used{};
        getrusage(RUSAGE_SELF, &used);
        std::fprintf(stderr, "simulated %s %llu cycles %ld seconds\n", output_.c_str(), static_cast<unsigned long long>(g_cycle - first_cycle_),
                     static_cast<long>(used.ru_utime.tv_sec + used.ru_stime.tv_sec));
    }

    const Options &options_;
    Blade blade_;
    Switch link_;
    std::FILE *commits_ = nullptr;
    std::vector<std::unique_ptr<Chip>> chips_;
    bool run_chosen_ = false;
    std::string output_;
    uint64_t first_cycle_ = 0;
    uint64_t last_cycle_ = options_.max_cycles;
};

} // namespace
} // namespace farmem

int main(int argc, char **argv) {
    Verilated::commandArgs(argc, argv);
    farmem::Options options = farmem::parse(argc, argv);
    auto simulator = std::make_unique<farmem::Simulator>(options);
    return simulator->run();
}
