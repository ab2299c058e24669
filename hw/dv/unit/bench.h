// SPDX-License-Identifier: MIT OR Apache-2.0
// What the unit tests share: a clock, random numbers with a seed that is shown, and checks.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>

#include "verilated.h"
#if VM_COVERAGE
#include "verilated_cov.h"
#endif

double sc_time_stamp() { return 0; }

namespace farmem {

inline uint64_t g_now = 0;
inline uint64_t g_seed = 1;

#define CHECK(condition)                                                                                                \
    do {                                                                                                                \
        if (!(condition)) {                                                                                             \
            std::fprintf(stderr, "%s:%d: cycle %llu, seed %llu: not so: %s\n", __FILE__, __LINE__,                      \
                         (unsigned long long)farmem::g_now, (unsigned long long)farmem::g_seed, #condition);            \
            std::exit(1);                                                                                               \
        }                                                                                                               \
    } while (0)

class Random {
  public:
    explicit Random(uint64_t seed) : engine_(seed) {}
    uint64_t below(uint64_t bound) { return engine_() % bound; }
    bool one_in(uint64_t n) { return below(n) == 0; }
    uint64_t word() { return engine_(); }

  private:
    std::mt19937_64 engine_;
};

// A number of its own for each `n`, in which every bit changes.
inline uint64_t spread(uint64_t n, unsigned bits) { return n * 0x9e3779b97f4a7c15 & ((uint64_t{1} << bits) - 1); }

// A model under test. Where coverage is counted it lives on: its counters are read at the end.
template <class Model> class Held {
  public:
    operator Model &() { return *model_; }
    ~Held() {
#if VM_COVERAGE
        (void)model_.release();
#endif
    }

  private:
    std::unique_ptr<Model> model_ = std::make_unique<Model>();
};

inline void coverage_write() {
#if VM_COVERAGE
    VerilatedCov::write("coverage.dat");
#endif
}

// Inputs are set, `settle` makes outputs follow, `edge` clocks.
template <class Model> void settle(Model &model) {
    model.clock = 0;
    model.eval();
}
template <class Model> void edge(Model &model) {
    model.clock = 1;
    model.eval();
    g_now++;
}
template <class Model> void reset(Model &model) {
    model.reset = 1;
    for (int i = 0; i < 3; i++) {
        settle(model);
        edge(model);
    }
    model.reset = 0;
}

// Runs `test(seed)` for so many seeds; the first argument chooses one, and a second the last of several.
template <class Test> int run_seeds(int argc, char **argv, uint64_t seeds, Test test) {
    Verilated::commandArgs(argc, argv);
    uint64_t first = 1, last = seeds;
    if (argc > 1 && argv[1][0] != '+') first = last = std::strtoull(argv[1], nullptr, 0);
    if (argc > 2 && argv[2][0] != '+') last = std::strtoull(argv[2], nullptr, 0);
    for (g_seed = first; g_seed <= last; g_seed++) test(g_seed);
    std::printf("%s: %llu seeds\n", argv[0], (unsigned long long)(last - first + 1));
    coverage_write();
    return 0;
}

} // namespace farmem
