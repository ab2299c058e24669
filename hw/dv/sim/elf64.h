// SPDX-License-Identifier: MIT OR Apache-2.0
// Loads a program into the simulated memory.
#pragma once

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace farmem {

// Copies the loadable parts. Returns what is wrong with the file, or nothing.
inline std::string load_elf64(const std::string &path, uint8_t *memory, uint64_t base, uint64_t bytes) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return "can't be read";
    std::vector<char> image((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    Elf64_Ehdr header;
    if (image.size() < sizeof header) return "is not an ELF file";
    std::memcpy(&header, image.data(), sizeof header);
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return "is not an ELF file";
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != EM_RISCV) return "is not a 64-bit RISC-V program";
    if (header.e_entry != base) return "does not begin where the core does";
    for (unsigned i = 0; i < header.e_phnum; i++) {
        Elf64_Phdr part;
        uint64_t at = header.e_phoff + uint64_t{i} * header.e_phentsize;
        if (at > image.size() || image.size() - at < sizeof part) return "is cut short";
        std::memcpy(&part, image.data() + at, sizeof part);
        if (part.p_type != PT_LOAD || part.p_memsz == 0) continue;
        if (part.p_filesz > part.p_memsz || part.p_offset > image.size() || image.size() - part.p_offset < part.p_filesz)
            return "is cut short";
        if (part.p_paddr < base || part.p_paddr - base > bytes || bytes - (part.p_paddr - base) < part.p_memsz)
            return "is too large for the memory";
        std::memcpy(memory + (part.p_paddr - base), image.data() + part.p_offset, part.p_filesz);
    }
    return {};
}

} // namespace farmem
